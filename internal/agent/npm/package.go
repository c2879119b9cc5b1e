package npm

import (
	_ "embed"
	"path"
	"strings"

	"github.com/overwinter-dev/overwinter/internal/agent"
)

// Image contains Node and what Install needs. It is the base of the agents' sandbox images at a
// provider that pulls images. `make pin-images` updates it to the current image of its tag.
const Image = "node:22.23.3-bookworm-slim@sha256:43ac6c60b8f89723f746e8a92ce91abd5017e627ce1ddfe4238355d3a30b772c"

//go:embed install.sh
var script string

// Package is a pinned npm package. {arch} in its name and version is replaced by x64 or arm64,
// depending on the machine.
type Package struct {
	Name    string // such as "@anthropic-ai/claude-code-linux-{arch}"
	Version string // exact
	Sums    Sums
}

// Sums are the SHA-512 checksums of a package's tarballs in hexadecimal, by architecture; empty if
// there is no package. They are equal for a package for every architecture.
type Sums struct{ X64, ARM64 string }

// Install returns the command that unpacks the package into dir. It needs sh, npm, tar and
// sha512sum, and does nothing if dir exists.
func (p Package) Install(dir string) []string {
	return []string{"sh", "-c", script, "install", p.Name, p.Version, p.Sums.X64, p.Sums.ARM64, dir}
}

// Installation returns an installation that unpacks the package into dir of an image and runs the
// commands. The last command must show that the program starts.
func (p Package) Installation(dir string, commands ...[]string) agent.Installation {
	return agent.Installation{Base: Image, Commands: append([][]string{p.Install(dir)}, commands...)}
}

// Directory returns a name for the package's directory, below root, that is unique to the version.
func (p Package) Directory(root string) string {
	name := strings.NewReplacer("@", "", "/", "-", "-{arch}", "").Replace(p.Name + "-" + p.Version)
	return path.Join(root, name)
}
