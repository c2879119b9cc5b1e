package codex

import (
	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/agent/codex/codexformat"
	"github.com/overwinter-dev/overwinter/internal/agent/npm"
)

// pinned is the npm package with the native program. It needs nothing else, not even Node.
var pinned = npm.Package{
	Name:    "@openai/codex",
	Version: Version + "-linux-{arch}",
	Sums: npm.Sums{
		X64:   "a34e4dc803820f28123d1a35ca29f3c6f91149d9ac672043f44ee66e99a345a9d27ccf25ca9a96b50804a385df364c21b82476685bbc9a518eb101855d56d5c3",
		ARM64: "359fc36905297109b19aa79eed9f6e0b5af3c371a149ba286b071a4ded4b379624f969629d42867535c98029514fff6881010433d4d6c58cefc4f7e3e46ff116",
	},
}

// Packages returns the npm packages of the agent.
func (Adapter) Packages() []npm.Package { return []npm.Package{pinned} }

// Installation returns how to install the pinned program at Binary.
func (Adapter) Installation() agent.Installation {
	return pinned.Installation(codexformat.Directory,
		[]string{"sh", "-c", `cd "$0" && ln -sf vendor/*/bin/codex codex`, codexformat.Directory},
		[]string{Binary, "--version"})
}
