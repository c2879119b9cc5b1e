package gemini

import (
	"path"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/agent/npm"
)

// Version is the pinned version of Gemini CLI.
const Version = "0.61.0"

// Program is the path of the program in a sandbox image. Node runs it.
const Program = "/overwinter/agents/gemini/bundle/gemini.js"

// sum is the checksum of the tarball. There is one tarball for all architectures.
const sum = "75b43d034a81b4524d8ba5c1907bdf67a033a67e8f3601ff3fc876319ebb44b957f21480563ba9dfd0915aa751c59bfb61722e86b15acadafccb48ca9e4a319d"

var _ agent.Installer = Adapter{}

// program is the npm package. It works without its optional dependencies.
var program = npm.Package{
	Name: "@google/gemini-cli", Version: Version, Sums: npm.Sums{X64: sum, ARM64: sum},
}

// Packages returns the npm packages of the agent.
func (Adapter) Packages() []npm.Package { return []npm.Package{program} }

// Installation returns how to install the pinned program at Program. It needs Node 20 or newer on
// the PATH.
func (Adapter) Installation() agent.Installation {
	return program.Installation(path.Dir(path.Dir(Program)), []string{"env", "GEMINI_CLI_NO_RELAUNCH=true", "node", Program, "--version"})
}
