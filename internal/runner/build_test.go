package runner

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestBuildMatchesLinkerFlags(t *testing.T) {
	t.Parallel()
	program, err := os.Executable()
	require.NoError(t, err)
	want, err := exec.CommandContext(t.Context(), "go", "tool", "buildid", program).Output()
	require.NoError(t, err)
	build, err := Build(program)
	require.NoError(t, err)
	require.Equal(t, strings.TrimSpace(string(want)), build)

	other := filepath.Join(t.TempDir(), "script")
	require.NoError(t, os.WriteFile(other, []byte("#!/bin/sh\n"), 0o700))
	_, err = Build(other)
	require.Error(t, err)
}
