package opencode

import (
	"path"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/agent/npm"
)

var _ agent.Installer = Adapter{}

// program is the npm package with the native program, which needs nothing else.
var program = npm.Package{
	Name:    "opencode-linux-{arch}",
	Version: Version,
	Sums: npm.Sums{
		X64: "abfb7fde9d824f1393f72da4be37ac6ff2d969bdbed5eaa5861580d3605eea68d3b6662d341701b2b239c83a38170ed948f056da8c8c20630d46a88a4238805b",
	},
}

// Packages returns the npm packages of the agent.
func (Adapter) Packages() []npm.Package { return []npm.Package{program} }

// Installation returns how to install the pinned program at Binary.
func (Adapter) Installation() agent.Installation {
	return program.Installation(path.Dir(path.Dir(Binary)), []string{Binary, "--version"})
}
