package turn

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/run"
	"github.com/overwinter-dev/overwinter/internal/secret"
)

// TestOnlyFreshMarkIsUsed checks that an attempt reads the secrets again if their mark is unknown, or was read
// before a slow step.
func TestOnlyFreshMarkIsUsed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		mark run.SecretsMark
		used bool
	}{
		{mark: run.SecretsMark{}},
		{mark: run.SecretsMark{Value: "m", At: time.Now().Add(-2 * markFresh)}},
		{mark: run.SecretsMark{Value: "m", At: time.Now().Add(time.Hour)}, used: true},
	} {
		a := &attempt{start: run.Start{SecretsMark: c.mark}}
		mark, used := secret.MarkOf(a.withMark(t.Context()))
		require.Equal(t, c.used, used)
		if used {
			require.Equal(t, c.mark.Value, mark)
		}
	}
}
