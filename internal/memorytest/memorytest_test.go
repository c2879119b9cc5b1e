package memorytest_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/memorytest"
)

func TestDirectoryIsRemovedAfterTest(t *testing.T) { //nolint:tparallel // the subtest must have ended
	t.Parallel()
	var dir string
	t.Run("inner", func(t *testing.T) {
		dir = memorytest.Dir(t)
		require.Equal(t, memorytest.Parent(), filepath.Dir(dir))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "f"), nil, 0o600))
	})
	require.NoDirExists(t, dir)
}

func TestTMPDIRIsRespected(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	require.Equal(t, os.TempDir(), memorytest.Parent())
}
