package claude

import (
	"path"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/agent/npm"
)

// Version is the pinned version of Claude Code.
const Version = "2.1.329"

// Binary is the path of the program in a sandbox image.
const Binary = "/overwinter/agents/claude/claude"

var _ agent.Installer = Adapter{}

// program is the npm package with the native program. It needs nothing else, not even Node.
var program = npm.Package{
	Name:    "@anthropic-ai/claude-code-linux-{arch}",
	Version: Version,
	Sums: npm.Sums{
		X64:   "fa7e25bb5b9b600a74d98d17fcc0149f1c3dc98e921c767bec5f88a16f95d3056816e888f68a5d1fa8287e37f5e205c908460c4cda64b3b1a7d62f1765328058",
		ARM64: "2221b9ba6153a120955aa075944b31c702312a0c4f5f26770d153dd79bfc278073e50dc9a6c94cd1ec359b9c9a4fe9455c13ef6319ac1208b45c8ebc5c7343d0",
	},
}

// Packages returns the npm packages of the agent.
func (Adapter) Packages() []npm.Package { return []npm.Package{program} }

// Installation returns how to install the pinned program at Binary.
func (Adapter) Installation() agent.Installation {
	return program.Installation(path.Dir(Binary), []string{Binary, "--version"})
}
