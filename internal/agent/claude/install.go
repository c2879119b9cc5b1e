package claude

import (
	_ "embed"

	"github.com/overwinter-dev/overwinter/internal/agent"
)

// packageSum is the SHA-512 of the package's tarball, as tools/install-claude.sh has it.
const packageSum = "fa7e25bb5b9b600a74d98d17fcc0149f1c3dc98e921c767bec5f88a16f95d3056816e888f68a5d1fa8287e37f5e205c908460c4cda64b3b1a7d62f1765328058"

// base has npm, which fetches the package.
const base = "node:22-bookworm-slim"

//go:embed install.sh
var installScript string

var _ agent.Installer = Adapter{}

// Installation puts the pinned program at Binary.
func (Adapter) Installation() agent.Installation {
	return agent.Installation{
		Base:     base,
		Commands: [][]string{{"sh", "-c", installScript, "install", Package, Version, packageSum, Binary}},
	}
}
