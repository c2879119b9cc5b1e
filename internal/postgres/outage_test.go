package postgres_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/why"
)

func TestWorkersRecordOutageTogether(t *testing.T) {
	t.Parallel()
	b := setup(t)
	require.NoError(t, b.OutageRecord(b.ctx, "database", 2*time.Hour, time.Hour))
	require.NoError(t, b.OutageRecord(b.ctx, "database", 150*time.Minute, 90*time.Minute), "another worker saw the beginning")
	require.NoError(t, b.OutageRecord(b.ctx, "temporal", 100*time.Minute, 90*time.Minute))
	require.NoError(t, b.OutageRecord(b.ctx, "database", 10*time.Minute, time.Minute))
	f, err := b.WhyFacts(b.ctx, b.id, why.Session, "")
	require.NoError(t, err)
	require.Len(t, f.Outages, 3)
	for i, want := range []struct {
		code         why.Code
		since, until time.Duration
	}{
		{why.DatabaseUnavailable, 10 * time.Minute, time.Minute},
		{why.DatabaseUnavailable, 150 * time.Minute, time.Hour},
		{why.TemporalUnavailable, 100 * time.Minute, 90 * time.Minute},
	} {
		require.Equal(t, want.code, f.Outages[i].Code)
		require.Equal(t, want.until-want.since, -f.Outages[i].Until.Sub(f.Outages[i].Since).Round(time.Minute))
	}
	require.Error(t, b.OutageRecord(b.ctx, "cellar", time.Minute, 0))

	b.sql(t, "INSERT INTO outages (part, since, until) SELECT 'temporal', now() - interval '1 day', now() - interval '1 day' FROM generate_series(1, 1500)")
	require.NoError(t, b.OutageRecord(b.ctx, "temporal", time.Minute, 0))
	require.EqualValues(t, 1000, query[int64](b.ctx, t, b.url, "SELECT count(*) FROM outages"))
}
