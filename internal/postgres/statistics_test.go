package postgres_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/postgres"
)

// TestStatisticsFollowGrowth lets a table grow, and change without growing. A table that another connection has locked is
// not waited for. A table whose number of rows is known only from an index is analyzed.
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
	due := func() bool {
		tables, err := b.StatisticsRefresh(b.ctx, 50)
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
		require.Equal(t, step.want, due(), step.name)
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
	require.True(t, due())
	require.Equal(t, 120, count("SELECT reltuples::int FROM pg_class WHERE relname = 'growing'"), "skipped")
	_, err = conn.Exec(b.ctx, "ROLLBACK")
	require.NoError(t, err)
	require.True(t, due())
	require.Equal(t, 1000, count("SELECT reltuples::int FROM pg_class WHERE relname = 'growing'"))

	b.sql(t, "CREATE TABLE restored (n int) WITH (autovacuum_enabled = off)")
	b.sql(t, "INSERT INTO restored SELECT generate_series(1, 100)")
	b.sql(t, "ALTER TABLE restored ADD PRIMARY KEY (n)")
	require.Equal(t, 100, count("SELECT reltuples::int FROM pg_class WHERE relname = 'restored'"))
	require.Eventually(t, func() bool {
		return count("SELECT n_live_tup FROM pg_stat_user_tables WHERE relname = 'restored'") == 100
	}, waitLimit, 10*time.Millisecond)
	tables, err := b.StatisticsRefresh(b.ctx, 50)
	require.NoError(t, err)
	require.Contains(t, tables, "restored")
	require.Positive(t, count("SELECT count(*) FROM pg_stats WHERE tablename = 'restored'"))
}

// TestStatisticsOfOtherTablesFollowGrowth has a table that cannot be analyzed, because an index needs a function that fails. It
// precedes a table that can.
func TestStatisticsOfOtherTablesFollowGrowth(t *testing.T) {
	t.Parallel()
	b := setup(t)
	conn, err := pgx.Connect(b.ctx, b.url)
	require.NoError(t, err)
	defer conn.Close(b.ctx)
	b.sql(t, "CREATE FUNCTION checked(n int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN RETURN n; END $$")
	for _, table := range []string{"a_broken", "b_whole"} {
		b.sql(t, "CREATE TABLE "+table+" (n int) WITH (autovacuum_enabled = off)")
		b.sql(t, "INSERT INTO "+table+" SELECT generate_series(1, 100)")
	}
	b.sql(t, "CREATE INDEX ON a_broken (checked(n))")
	b.sql(t, "CREATE OR REPLACE FUNCTION checked(n int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN RAISE 'refused'; END $$")
	require.Eventually(t, func() bool {
		var known int
		err := conn.QueryRow(b.ctx, "SELECT count(*) FROM pg_stat_user_tables WHERE relname IN ('a_broken', 'b_whole') AND n_live_tup = 100").Scan(&known)
		return err == nil && known == 2
	}, waitLimit, 10*time.Millisecond)
	due, err := b.StatisticsRefresh(b.ctx, 50)
	require.ErrorContains(t, err, "a_broken")
	require.Subset(t, due, []string{"a_broken", "b_whole"})
	var rows int
	require.NoError(t, conn.QueryRow(b.ctx, "SELECT reltuples::int FROM pg_class WHERE relname = 'b_whole'").Scan(&rows))
	require.Equal(t, 100, rows)
}

// TestPlansFollowGrowth plans the statements of a turn while there is one session. When there are many, the same
// connection looks up sessions, runs, blocks and events by keys.
func TestPlansFollowGrowth(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.attended(t)
	b.sql(t, "ANALYZE")
	s := &longSession{harness: b, attendant: "a1"}
	db, err := postgres.Open(b.ctx, b.url, postgres.Options{MaxConns: 1})
	require.NoError(t, err)
	defer db.Close()
	read := func() {
		s.turn(t, db)
		_, err = db.EventsPage(b.ctx, b.id, 0, 10)
		require.NoError(t, err)
	}
	read()
	for range 150 {
		other := *b
		other.id = b.session(t)
		other.attended(t)
		(&longSession{harness: &other, attendant: "a1"}).turn(t, b.DB)
	}
	b.Close() // the server counts the changes of a connection when it ends
	conn, err := pgx.Connect(b.ctx, b.url)
	require.NoError(t, err)
	defer conn.Close(b.ctx)
	require.Eventually(t, func() bool {
		_, refreshErr := db.StatisticsRefresh(b.ctx, 50)
		var known int
		err := conn.QueryRow(b.ctx, "SELECT count(*) FROM pg_class WHERE relname IN ('sessions', 'runs', 'blocks', 'event_log') AND reltuples >= 100").Scan(&known)
		return refreshErr == nil && err == nil && known == 4
	}, waitLimit, 10*time.Millisecond)
	read()
	plans, err := postgres.ExplainPrepared(b.ctx, db)
	require.NoError(t, err)
	for _, plan := range plans {
		for _, scan := range scansWithoutKey(plan) {
			for _, table := range []string{"sessions", "runs", "blocks", "event_log"} {
				require.NotContains(t, scan+" ", " on "+table+" ", plan)
			}
		}
	}
}

// scansWithoutKey returns the scans of a plan that read a whole table or index.
func scansWithoutKey(plan string) (scans []string) {
	lines := strings.Split(plan, "\n")
	indent := func(line string) int { return len(line) - len(strings.TrimLeft(line, " ->")) }
	for i, line := range lines {
		if !strings.Contains(line, " Scan using ") && !strings.Contains(line, "Seq Scan") {
			continue
		}
		keyed := false
		for _, of := range lines[i+1:] {
			if indent(of) <= indent(line) || strings.Contains(of, "->") {
				break
			}
			keyed = keyed || strings.Contains(of, "Index Cond")
		}
		if !keyed {
			scans = append(scans, strings.TrimSpace(line))
		}
	}
	return scans
}
