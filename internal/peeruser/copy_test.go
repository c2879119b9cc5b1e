package peeruser

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// The module of the Temporal server has a copy of this package.
func TestTemporalCopyIsIdentical(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"peeruser.go", "owner_linux.go", "owner_other.go"} {
		want, err := os.ReadFile(name)
		require.NoError(t, err)
		got, err := os.ReadFile(filepath.Join("../../devserver/internal/peeruser", name))
		require.NoError(t, err)
		require.Equal(t, string(want), string(got), "%s: copy it to devserver/internal/peeruser", name)
	}
}
