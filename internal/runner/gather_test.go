package runner_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/runner"
	"github.com/overwinter-dev/overwinter/internal/workspacefile"
)

// TestChangesWithoutContentAreGatheredWithinBound checks that paths count towards the bound in
// bytes at which a seal stores the gathered changes.
func TestChangesWithoutContentAreGatheredWithinBound(t *testing.T) {
	t.Parallel()
	var g runner.FileGatherer
	changed := 0
	for g.Bytes < 8<<20 {
		changed++
		require.Less(t, changed, 100_000)
		g.Gather(&runner.FileChanged{Change: workspacefile.Change{Content: workspacefile.Content{Info: workspacefile.Info{Path: "some/path"}}}})
	}
	batch, any := g.Take()
	require.True(t, any)
	require.Len(t, batch.Changes, changed)
	require.Zero(t, g.Bytes)
	_, any = g.Take()
	require.False(t, any)
}
