package postgres_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/backlog"
	"github.com/overwinter-dev/overwinter/internal/bundle"
	"github.com/overwinter-dev/overwinter/internal/eventlog"
	"github.com/overwinter-dev/overwinter/internal/listing"
	"github.com/overwinter-dev/overwinter/internal/postgres"
	"github.com/overwinter-dev/overwinter/internal/run"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// TestAppendsArePlannedOnce checks that the number of plans does not grow with the number of
// commits.
func TestAppendsArePlannedOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	db, err := postgres.Open(b.ctx, b.url, postgres.Options{MaxConns: 1})
	require.NoError(t, err)
	defer db.Close()
	var appends []eventlog.Append
	for i := range 6 {
		other := *b
		other.id = b.session(t)
		other.running(t)
		appends = append(appends, eventlog.Append{
			SessionID: other.id, RunID: other.begin(t, other.submit(t, fmt.Sprint(i))), Generation: 1, Token: "t1", State: []byte("{}"),
		})
	}
	const commits = 50
	for frame := range int64(commits) {
		for i := range appends {
			appends[i].LastFrame = frame
			appends[i].Events = []eventlog.Draft{draft("text_delta", frame, 0, `{"blockId":"block_1","delta":"word "}`)}
		}
		verdicts, err := db.EventsTryAppend(b.ctx, appends)
		require.NoError(t, err)
		for _, verdict := range verdicts {
			require.NoError(t, verdict)
		}
	}
	plannedOnce(t, b, db, commits/2)
}

// TestTurnsArePlannedOnce checks the same for the writes of prompts and turns.
func TestTurnsArePlannedOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.attended(t)
	db, err := postgres.Open(b.ctx, b.url, postgres.Options{MaxConns: 1})
	require.NoError(t, err)
	defer db.Close()
	const turns = 20
	attendant := "a1"
	for i := range turns {
		_, _, _, err := db.PromptSubmit(b.ctx, session.Prompt{ID: session.NewID(session.PromptPrefix), SessionID: b.id, Content: "hello"})
		require.NoError(t, err)
		claimed, err := db.RunClaim(b.ctx, run.Claim{
			SessionID: b.id, Attendant: attendant, Generation: 1, RunID: session.NewID(session.RunPrefix), Token: "c1", Attempt: 1,
		})
		require.NoError(t, err)
		require.NotNil(t, claimed.Start)
		attendant = fmt.Sprint("a", i+2)
		ended, err := db.RunEnd(b.ctx, run.Ending{
			RunID: claimed.Start.Run.ID, Token: "c1", Outcome: session.OutcomeCompleted, RecheckFor: "w1", Attend: attendant,
		})
		require.NoError(t, err)
		require.True(t, ended.Attended)
	}
	plannedOnce(t, b, db, turns/2)
}

// TestReadsOfSessionsArePlannedOnce: clients that poll read a session or a prompt many times, with
// lists in between.
func TestReadsOfSessionsArePlannedOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.attended(t)
	prompt := b.submit(t, "hello")
	b.sql(t, "ANALYZE") // without statistics, a custom plan rarely seems cheaper
	db, err := postgres.Open(b.ctx, b.url, postgres.Options{MaxConns: 1})
	require.NoError(t, err)
	defer db.Close()
	const reads = 20
	for range reads {
		got, err := db.SessionGet(b.ctx, b.id)
		require.NoError(t, err)
		require.Equal(t, b.id, got.ID)
		_, err = db.PromptGet(b.ctx, b.id, prompt)
		require.NoError(t, err)
		_, _, _, err = db.SessionNeeds(b.ctx, b.id, []string{"ANTHROPIC_API_KEY"})
		require.NoError(t, err)
		items, _, err := db.SessionList(b.ctx, listing.Filter{})
		require.NoError(t, err)
		require.Len(t, items, 1)
	}
	plannedOnce(t, b, db, reads/2)
}

// TestReadsOfTurnsArePlannedOnce: Postgres must not even be able to prefer a new plan for each read,
// as it does with the statistics of a busy installation.
func TestReadsOfTurnsArePlannedOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.attended(t)
	db, err := postgres.Open(b.ctx, b.url+"&plan_cache_mode=force_custom_plan", postgres.Options{MaxConns: 1})
	require.NoError(t, err)
	defer db.Close()
	const reads = 10
	for range reads {
		_, err := db.SessionGet(b.ctx, b.id)
		require.NoError(t, err)
		_, err = db.PromptsUnclaimed(b.ctx, []backlog.Unclaimed{{SessionID: b.id, PromptID: "p"}})
		require.NoError(t, err)
	}
	plannedOnce(t, b, db, reads/2)
}

// plannedOnce requires fewer than most plans of every statement that the only connection of a pool
// has prepared.
func plannedOnce(t *testing.T, b *harness, db *postgres.DB, most int64) {
	t.Helper()
	statements, err := postgres.PlansOf(b.ctx, db)
	require.NoError(t, err)
	require.NotEmpty(t, statements)
	for _, s := range statements {
		t.Logf("%d custom, %d generic: %.60s", s.Custom, s.Generic, s.SQL)
	}
	for _, s := range statements {
		require.Less(t, s.Custom, most, s.SQL)
	}
}

// TestReadsOfEventsArePlannedOnce: a reader that follows a log reads it after every commit.
func TestReadsOfEventsArePlannedOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	db, err := postgres.Open(b.ctx, b.url, postgres.Options{MaxConns: 1})
	require.NoError(t, err)
	defer db.Close()
	const reads = 50
	for range reads {
		_, err := db.EventsPage(b.ctx, b.id, 0, 10)
		require.NoError(t, err)
	}
	statements, err := postgres.PlansOf(b.ctx, db)
	require.NoError(t, err)
	var generic int64
	for _, s := range statements {
		t.Logf("%d custom, %d generic: %.60s", s.Custom, s.Generic, s.SQL)
		require.Less(t, s.Custom, int64(reads/2), s.SQL)
		generic += s.Generic
	}
	require.GreaterOrEqual(t, generic, int64(reads))
}

// TestPlansOfReadsAndAppendsScanNoTable: plans are kept until a table is analyzed, so those made
// while tables are small must suit large tables as well.
func TestPlansOfReadsAndAppendsScanNoTable(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.running(t)
	run := b.begin(t, b.submit(t, "hello"))
	b.sql(t, "ANALYZE")
	db, err := postgres.Open(b.ctx, b.url, postgres.Options{MaxConns: 1})
	require.NoError(t, err)
	defer db.Close()
	verdicts, err := db.EventsAppend(b.ctx, []eventlog.Append{{
		SessionID: b.id, RunID: run, Generation: 1, Token: "t1", State: []byte("{}"), LastFrame: 1,
		Events: []eventlog.Draft{draft("text_delta", 1, 0, `{"blockId":"block_1","delta":"word "}`)},
	}})
	require.NoError(t, err)
	require.NoError(t, verdicts[0])
	verdicts, err = db.EventsTryAppend(b.ctx, []eventlog.Append{{
		SessionID: b.id, RunID: run, Generation: 1, Token: "t1", State: []byte("{}"), LastFrame: 2,
		Events: []eventlog.Draft{draft("text_delta", 2, 0, `{"blockId":"block_1","delta":"word "}`)},
	}})
	require.NoError(t, err)
	require.NoError(t, verdicts[0])
	_, err = db.EventsPage(b.ctx, b.id, 0, 10)
	require.NoError(t, err)
	plans, err := postgres.ExplainPrepared(b.ctx, db)
	require.NoError(t, err)
	logs := 0
	for _, plan := range plans {
		require.NotContains(t, plan, "Seq Scan")
		require.NotContains(t, plan, "Bitmap")
		require.NotContains(t, plan, "Hash Join")
		require.NotContains(t, plan, "Merge Join")
		if strings.Contains(plan, "Index Scan using event_log_pkey") {
			logs++
		}
	}
	require.Equal(t, 1, logs, "the log is read by position: %v", plans)
}

// TestUsesOfSnapshotsAreFoundByIndex: every bundle that is committed asks which snapshots its session
// still needs.
func TestUsesOfSnapshotsAreFoundByIndex(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.running(t)
	b.commit(t, "im-1")
	for _, rows := range []string{
		"sessions SELECT (jsonb_populate_record(s, jsonb_build_object('id', s.id || n, 'no', nextval('sessions_no_seq')))).* FROM sessions s",
		"snapshots SELECT (jsonb_populate_record(s, jsonb_build_object('id', s.id || n, 'session_id', s.session_id || n))).* FROM snapshots s",
		"bundles OVERRIDING USER VALUE SELECT (jsonb_populate_record(s, jsonb_build_object('id', s.id || n, 'session_id', s.session_id || n, 'snapshot_id', s.snapshot_id || n))).* FROM bundles s",
	} {
		b.sql(t, "INSERT INTO "+rows+", generate_series(1, 2000) n")
	}
	b.sql(t, "ANALYZE")
	db, err := postgres.Open(b.ctx, b.url, postgres.Options{MaxConns: 1})
	require.NoError(t, err)
	defer db.Close()
	require.NoError(t, db.BundleCommit(b.ctx, bundle.Bundle{ID: session.NewID(session.BundlePrefix), SessionID: b.id, Generation: 1, SnapshotID: "im-1"}))
	plans, err := postgres.ExplainPrepared(b.ctx, db)
	require.NoError(t, err)
	uses := 0
	for _, plan := range plans {
		if !strings.HasPrefix(plan, "Update on snapshots n") || !strings.Contains(plan, "snapshots_of_session") {
			continue
		}
		uses++
		require.Contains(t, plan, "Index Scan using bundles_snapshot")
		require.NotContains(t, plan, "Seq Scan")
		require.NotContains(t, plan, "Hash Join")
	}
	require.Equal(t, 1, uses, "%v", plans)
}
