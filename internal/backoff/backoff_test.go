package backoff_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/backoff"
)

func TestPausesDoubleUpToLongest(t *testing.T) {
	t.Parallel()
	pauses := backoff.New(100*time.Millisecond, time.Second)
	for i := range 1000 {
		nominal := time.Second
		if i < 4 {
			nominal = 100 * time.Millisecond << i
		}
		pause, stop := pauses.Next()
		require.False(t, stop)
		require.InDelta(t, nominal, pause, float64(nominal)/4, "pause %d", i)
	}
}

func TestPausesDiffer(t *testing.T) {
	t.Parallel()
	seen := map[time.Duration]bool{}
	for range 20 {
		pause, _ := backoff.New(time.Second, time.Minute).Next()
		seen[pause] = true
	}
	require.Greater(t, len(seen), 10)
}
