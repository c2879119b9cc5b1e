package postgres_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/postgres"
)

// TestTurnsDoNotCauseAnalyses counts the rows that turns change, by table. No table reaches its
// thresholds of autovacuum within a thousand turns: after each vacuum or analysis of a table all
// connections plan the statements that use it again.
func TestTurnsDoNotCauseAnalyses(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.attended(t)
	s := &longSession{harness: b, attendant: "a1"}
	b.Close() // the server counts the changes of a connection when it ends
	before := b.tableChanges(t)
	const turns = 20
	b.reads(t, func(db *postgres.DB) {
		for range turns {
			s.turn(t, db)
		}
	})
	after := b.tableChanges(t)
	require.Positive(t, after["prompts"].changed-before["prompts"].changed)
	for table, c := range after {
		was := before[table]
		for what, n := range map[string]struct{ rows, threshold int64 }{
			"changed":  {c.changed - was.changed, c.analyzed},
			"dead":     {c.dead - was.dead, c.vacuumed},
			"inserted": {c.inserted - was.inserted, c.frozen},
		} {
			if n.rows*1000/turns > n.threshold {
				t.Errorf("%d turns leave %d %s rows in %s, whose threshold is %d", turns, n.rows, what, table, n.threshold)
			}
		}
	}
}

// tableChanges are the changes of a table since its creation, and the thresholds after which it is
// analyzed and vacuumed while it is small.
type tableChanges struct{ changed, dead, inserted, analyzed, vacuumed, frozen int64 }

// tableChanges returns the changes of each table, once no other connection is left.
func (b *harness) tableChanges(t *testing.T) map[string]tableChanges {
	t.Helper()
	conn := b.counted(t, "true")
	defer conn.Close(b.ctx)
	rows, err := conn.Query(b.ctx, `SELECT s.relname, n_tup_ins + n_tup_upd + n_tup_del, n_tup_upd - n_tup_hot_upd + n_tup_del, n_tup_ins,
		coalesce(o->>'autovacuum_analyze_threshold', current_setting('autovacuum_analyze_threshold'))::bigint,
		coalesce(o->>'autovacuum_vacuum_threshold', current_setting('autovacuum_vacuum_threshold'))::bigint,
		coalesce(o->>'autovacuum_vacuum_insert_threshold', current_setting('autovacuum_vacuum_insert_threshold'))::bigint
		FROM pg_stat_user_tables s
		JOIN pg_class c ON c.oid = s.relid
		CROSS JOIN LATERAL (SELECT jsonb_object_agg(option_name, option_value) AS o FROM pg_options_to_table(c.reloptions)) options`)
	require.NoError(t, err)
	changes := map[string]tableChanges{}
	var table string
	var c tableChanges
	_, err = pgx.ForEachRow(rows, []any{&table, &c.changed, &c.dead, &c.inserted, &c.analyzed, &c.vacuumed, &c.frozen}, func() error {
		changes[table] = c
		return nil
	})
	require.NoError(t, err)
	return changes
}
