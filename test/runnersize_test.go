package test

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestRunnerHasStatedSize compares the runner with the size in ARCHITECTURE.md: each new sandbox loads it.
func TestRunnerHasStatedSize(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join("..", "ARCHITECTURE.md"))
	require.NoError(t, err)
	found := regexp.MustCompile(`the program inside every sandbox, (\d+) MiB`).FindSubmatch(text)
	require.NotNil(t, found)
	stated, err := strconv.ParseFloat(string(found[1]), 64)
	require.NoError(t, err)
	runner, err := os.Stat(program(t, "overwinter-runner"))
	require.NoError(t, err)
	require.InDelta(t, stated, float64(runner.Size())/(1<<20), 1)
}
