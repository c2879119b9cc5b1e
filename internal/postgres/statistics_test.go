package postgres_test

import (
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// TestStatisticsFollowGrowth lets a table grow, and change without growing. A table that another connection analyzes is
// not waited for.
func TestStatisticsFollowGrowth(t *testing.T) {
	t.Parallel()
	b := setup(t)
	conn, err := pgx.Connect(b.ctx, b.url)
	require.NoError(t, err)
	defer conn.Close(b.ctx)
	count := func(query string) (n int) {
		require.NoError(t, conn.QueryRow(b.ctx, query).Scan(&n))
		return n
	}
	analyzed := func() bool {
		tables, err := b.StatisticsRefresh(b.ctx)
		require.NoError(t, err)
		return slices.Contains(tables, "growing")
	}
	b.sql(t, "CREATE TABLE growing (n int PRIMARY KEY, changed int NOT NULL DEFAULT 0) WITH (autovacuum_enabled = off)")
	rows, changes := 0, 0
	for _, step := range []struct {
		name    string
		rows    int
		changed bool // all rows are
		want    bool
	}{
		{"few rows", 49, false, false},
		{"first analysis", 60, false, true},
		{"changes without growth", 60, true, false},
		{"growth", 119, false, false},
		{"doubled", 120, false, true},
		{"after that", 120, true, false},
	} {
		b.sql(t, "INSERT INTO growing SELECT generate_series($1::int, $2::int)", rows+1, step.rows)
		changes += step.rows - rows
		rows = step.rows
		if step.changed {
			b.sql(t, "UPDATE growing SET changed = changed + 1")
			changes += rows
		}
		require.Eventually(t, func() bool {
			return count("SELECT n_tup_ins + n_tup_upd FROM pg_stat_user_tables WHERE relname = 'growing'") == changes
		}, waitLimit, 10*time.Millisecond, "the server counts changes when their connection has ended")
		require.Equal(t, step.want, analyzed(), step.name)
		if step.want {
			require.Equal(t, rows, count("SELECT reltuples::int FROM pg_class WHERE relname = 'growing'"), step.name)
		}
	}

	b.sql(t, "INSERT INTO growing SELECT generate_series(121, 1000)")
	require.Eventually(t, func() bool {
		return count("SELECT n_live_tup FROM pg_stat_user_tables WHERE relname = 'growing'") == 1000
	}, waitLimit, 10*time.Millisecond)
	_, err = conn.Exec(b.ctx, "BEGIN; LOCK TABLE growing IN SHARE UPDATE EXCLUSIVE MODE")
	require.NoError(t, err)
	require.True(t, analyzed())
	require.Equal(t, 120, count("SELECT reltuples::int FROM pg_class WHERE relname = 'growing'"), "skipped")
	_, err = conn.Exec(b.ctx, "ROLLBACK")
	require.NoError(t, err)
	require.True(t, analyzed())
	require.Equal(t, 1000, count("SELECT reltuples::int FROM pg_class WHERE relname = 'growing'"))
}
