package main

import (
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// The program is copied into arbitrary images and must not depend on them.
func TestProgramIsSmallAndStatic(t *testing.T) {
	t.Parallel()
	program := filepath.Join(t.TempDir(), "overwinter-runner")
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", program, ".")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	info, err := os.Stat(program)
	require.NoError(t, err)
	require.Less(t, info.Size(), int64(15_000_000))
	file, err := elf.Open(program)
	require.NoError(t, err)
	for _, p := range file.Progs {
		require.NotEqual(t, elf.PT_INTERP, p.Type, "it is linked dynamically")
	}
	require.NoError(t, file.Close())
}
