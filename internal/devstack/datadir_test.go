package devstack_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// Files that an earlier version or the user left accessible to others are closed at the start.
func TestDataDirectoryIsTightened(t *testing.T) {
	t.Parallel()
	b := setup(t)
	require.NoError(t, os.MkdirAll(b.dataDir, 0o755))
	require.NoError(t, os.Chmod(b.dataDir, 0o755))
	modal := b.dataDir + "/modal"
	require.NoError(t, os.Mkdir(modal, 0o755))
	b.run(b.config()).end()
	want := os.FileMode(0o700)
	if os.Geteuid() == 0 {
		want = 0o711 // Postgres runs as another user below it
	}
	for path, want := range map[string]os.FileMode{b.dataDir: want, modal: 0o700} {
		info, err := os.Stat(path)
		require.NoError(t, err)
		require.Equal(t, want, info.Mode().Perm(), path)
	}
}
