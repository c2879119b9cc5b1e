package npm

import (
	_ "embed"
	"path"
	"strings"

	"github.com/overwinter-dev/overwinter/internal/agent"
)

// Image has what Install needs and Node, and is the base of the agents' sandbox images at a provider that pulls
// images. `make pin-images` moves it to the present image of its tag.
const Image = "node:22.23.3-bookworm-slim@sha256:43ac6c60b8f89723f746e8a92ce91abd5017e627ce1ddfe4238355d3a30b772c"

//go:embed install.sh
var script string

// Package is a pinned npm package. {arch} in its name and its version stands for x64 or arm64,
// whichever the machine is that it is installed on.
type Package struct {
	Name    string // such as "@anthropic-ai/claude-code-linux-{arch}"
	Version string // exact
	Sums    Sums
}

// Sums are the SHA-512 of a package's tarballs in hexadecimal, by architecture; empty where there is
// no package. Those of a package that is for every architecture are the same.
type Sums struct{ X64, ARM64 string }

// Install is the command that unpacks the package into dir. It needs sh, npm, tar and sha512sum,
// and does nothing where dir exists.
func (p Package) Install(dir string) []string {
	return []string{"sh", "-c", script, "install", p.Name, p.Version, p.Sums.X64, p.Sums.ARM64, dir}
}

// Installation unpacks the package into dir of an image and runs the commands, the last of which shows that the
// program starts.
func (p Package) Installation(dir string, commands ...[]string) agent.Installation {
	return agent.Installation{Base: Image, Commands: append([][]string{p.Install(dir)}, commands...)}
}

// Directory is a name for the package's directory, below root, that no other version has.
func (p Package) Directory(root string) string {
	name := strings.NewReplacer("@", "", "/", "-", "-{arch}", "").Replace(p.Name + "-" + p.Version)
	return path.Join(root, name)
}
