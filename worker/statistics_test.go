package worker

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// tablesDue records when statistics were refreshed.
type tablesDue struct {
	began  time.Time
	at     []time.Duration
	failed int // further calls that fail
}

func (d *tablesDue) StatisticsRefresh(context.Context, int) ([]string, error) {
	d.at = append(d.at, time.Since(d.began))
	if d.failed > 0 {
		d.failed--
		return []string{"runs"}, errors.New("no")
	}
	return nil, nil
}

// TestStatisticsAreRefreshedLessOftenWhileThatFails checks the pauses before, during and after failures, up to the longest.
func TestStatisticsAreRefreshedLessOftenWhileThatFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &tablesDue{began: time.Now(), failed: 7}
		ctx, cancel := context.WithTimeout(t.Context(), 1665*time.Second)
		defer cancel()
		require.ErrorIs(t, Statistics{Tables: d}.run(ctx, slog.New(slog.DiscardHandler)), context.DeadlineExceeded)
		var pauses []int
		for i := range d.at[1:] {
			pauses = append(pauses, int((d.at[i+1] - d.at[i]).Seconds()))
		}
		require.Equal(t, []int{30, 60, 120, 240, 480, 600}, pauses[:6], "while it fails")
	})
	require.NoError(t, Statistics{}.run(t.Context(), nil), "without tables")
}
