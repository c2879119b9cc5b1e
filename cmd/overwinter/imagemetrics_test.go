package main

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/image"
)

// countsOf are counts, or an error.
type countsOf struct {
	counts image.Counts
	err    error
	asked  int
}

func (c *countsOf) ImageCounts(context.Context, time.Duration) (image.Counts, error) {
	c.asked++
	return c.counts, c.err
}

func TestImageCountsAreGathered(t *testing.T) {
	t.Parallel()
	counter := &countsOf{err: errors.New("away")}
	metrics := imageMetrics(counter)
	found, err := metrics.Gather()
	require.NoError(t, err)
	require.Empty(t, found, "nothing is known while Postgres is away")
	counter.counts, counter.err = image.Counts{Unneeded: 1, Failing: 2, Exits: 3, Hidden: 4}, nil
	for range 2 {
		found, err = metrics.Gather()
		require.NoError(t, err)
		require.Len(t, found, 1)
		got := map[string]float64{}
		for _, m := range found[0].GetMetric() {
			got[m.GetLabel()[0].GetValue()] = m.GetGauge().GetValue()
		}
		require.Equal(t, map[string]float64{"unneeded": 1, "failing": 2, "exit_pending": 3, "hidden": 4}, got)
	}
	require.Equal(t, 2, counter.asked, "a count is shown for a while")
}
