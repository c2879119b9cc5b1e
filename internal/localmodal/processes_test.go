package localmodal_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// processes counts the machine's processes whose command line contains text.
func processes(t *testing.T, text string) int {
	t.Helper()
	paths, err := filepath.Glob("/proc/[0-9]*/cmdline")
	require.NoError(t, err)
	n := 0
	for _, path := range paths {
		if b, err := os.ReadFile(path); err == nil && strings.Contains(string(b), text) {
			n++
		}
	}
	return n
}
