package postgres_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/attachment"
	"github.com/overwinter-dev/overwinter/internal/eventlog"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/fork"
	"github.com/overwinter-dev/overwinter/internal/image"
	"github.com/overwinter-dev/overwinter/internal/lifecycle"
	"github.com/overwinter-dev/overwinter/internal/postgres"
	"github.com/overwinter-dev/overwinter/internal/presence"
	"github.com/overwinter-dev/overwinter/internal/purge"
	"github.com/overwinter-dev/overwinter/internal/question"
	"github.com/overwinter-dev/overwinter/internal/run"
	"github.com/overwinter-dev/overwinter/internal/session"
	"github.com/overwinter-dev/overwinter/internal/transcript"
	"github.com/overwinter-dev/overwinter/internal/webhook"
	"github.com/overwinter-dev/overwinter/internal/workspacefile"
)

const planted = "Xylophone7Quartz"

// find lists the tables with a row that contains the words.
func find(t *testing.T, url, words string) []string {
	t.Helper()
	ctx := t.Context()
	conn, err := pgx.Connect(ctx, url)
	require.NoError(t, err)
	defer conn.Close(ctx)
	rows, err := conn.Query(ctx, "SELECT table_name::text FROM information_schema.tables WHERE table_schema = 'public' AND table_type = 'BASE TABLE' ORDER BY 1")
	require.NoError(t, err)
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	require.Contains(t, tables, "event_log")
	var found []string
	for _, table := range tables {
		var n int
		// The text form of a row has bytes in hexadecimal.
		require.NoError(t, conn.QueryRow(ctx, fmt.Sprintf("SELECT count(*) FROM %s r WHERE r::text LIKE '%%' || $1 || '%%' OR r::text LIKE '%%' || encode($1::bytea, 'hex') || '%%'", table), words).Scan(&n))
		if n > 0 {
			found = append(found, table)
		}
	}
	return found
}

// plant stores the words in every text of a session.
func (b *harness) plant(t *testing.T) {
	t.Helper()
	id := session.NewID(session.SessionPrefix)
	_, _, err := b.SessionCreate(b.ctx, session.Session{
		ID: id, Agent: "demo", Title: planted, Metadata: json.RawMessage(`{"k":"` + planted + `"}`),
		Workspace: &session.Workspace{RepoURL: "https://example.org/" + planted},
	}, nil, session.Idempotency{Key: planted + id, Digest: "d"})
	require.NoError(t, err)
	b.id = id
	b.running(t)
	runID := b.begin(t, b.submit(t, planted))
	require.NoError(t, b.appendOne(t, eventlog.Append{
		SessionID: b.id, RunID: runID, Generation: 1, Token: "t1", LastFrame: 3, State: []byte(planted),
		Events: []eventlog.Draft{
			draft("block_start", 0, 0, `{"block":{"id":"b1","type":"assistant_text","status":"streaming","createdAt":"2026-01-01T00:00:00Z","content":"`+planted+`"}}`),
			draft("text_delta", 1, 0, `{"blockId":"b1","delta":"`+planted+`"}`),
			{Type: "git_state", Frame: 1, N: 1, Data: json.RawMessage(`{"branch":"` + planted + `"}`)},
			{Type: "screenshot", Frame: 1, N: 2, Data: json.RawMessage(`{"image":{"id":"att_1","mediaType":"image/png","bytes":1},"description":"` + planted + `"}`)},
			{Type: "error", ConversationID: planted, Frame: 2, Data: json.RawMessage(`{"message":"` + planted + `"}`)},
		},
		Questions: []eventlog.Question{{Frame: 3, Asked: question.Asked{ID: planted, Kind: question.Permission, ToolName: "Bash", Input: json.RawMessage(`{"command":"` + planted + `"}`)}}},
	}))
	require.NoError(t, b.TranscriptAppend(b.ctx, []transcript.Segment{{SessionID: b.id, Path: "/" + planted, Version: 1, RunID: runID, Data: []byte(planted)}}))
	require.NoError(t, b.AttachmentsAppend(b.ctx, attachment.Batch{
		SessionID: b.id, RunID: runID, Generation: 1, Token: "t1", Attachments: []attachment.Attachment{picture(planted)},
	}))
	require.NoError(t, b.FilesAppend(b.ctx, workspacefile.Batch{
		SessionID: b.id, Generation: 1, RunID: runID, Token: "t1", Lineage: planted, Changes: []workspacefile.Change{written(1, planted, planted)},
		Diff: &workspacefile.Diff{Patch: []byte(planted)},
	}))
	_, err = b.RunEnd(b.ctx, run.Ending{RunID: runID, Token: "t1", Outcome: session.OutcomeFailed, Reason: planted})
	require.NoError(t, err)
	viewer := presence.Viewer{Client: planted + id, SessionID: b.id, User: presence.User{ID: planted, Name: planted}}
	require.NoError(t, b.PresenceRenew(b.ctx, []presence.Viewer{viewer}, time.Hour))
	_, err = b.CommandSubmit(b.ctx, session.Command{SessionID: b.id, Kind: session.CommandSync, RequestID: planted})
	require.NoError(t, err)
	v := b.snapshotted(t, "im-"+b.id)
	_, err = b.ArchiveRequest(b.ctx, v.ID)
	require.NoError(t, err)
	made := b.taken(t)
	require.NoError(t, b.ArchiveWrite(b.ctx, made.ID, made.Attempt, strings.NewReader(planted)))
	b.sql(t, fmt.Sprintf(`INSERT INTO earlier_files (session_id, size, sha256, mode, modified_at, unsaved, path, from_epoch, until_epoch)
		VALUES ('%s', 0, '', 0, now(), 'too_large', '%s', 0, 9)`, b.id, planted))
	b.sql(t, fmt.Sprintf(`INSERT INTO earlier_diffs (session_id, from_epoch, until_epoch, diff) VALUES ('%s', 0, 9, '{"%s": 1}')`, b.id, planted))
	b.dispatch(t)
	due, err := b.WebhookDeliveriesDue(b.ctx, 100)
	require.NoError(t, err)
	require.NoError(t, b.WebhookDeliveriesStarted(b.ctx, due)) // none if the test has no endpoint
	for _, delivery := range due {
		_, err := b.WebhookAttempted(b.ctx, delivery, &webhook.Attempt{At: time.Now(), Code: 500, Error: planted}, webhook.Verdict{Status: webhook.Failed})
		require.NoError(t, err)
	}
}

// TestPurgeErasesSessionEverywhere plants words in two sessions and purges one of them.
func TestPurgeErasesSessionEverywhere(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.webhook(t, lifecycle.Filter{})
	b.plant(t)
	where := find(t, b.url, planted)
	for _, table := range []string{
		"sessions", "prompts", "event_log", "event_conversations", "blocks", "runs", "questions", "transcripts", "idempotency_keys", "attachments", "session_reports", "screenshots",
		"workspace_files", "workspaces", "presences", "session_commands", "webhook_attempts",
	} {
		require.Contains(t, where, table)
	}
	for _, table := range postgres.PurgeTables() {
		switch table {
		case "session_forks", "session_imports": // they have separate tests
		default:
			require.NotZero(t, b.count(t, table), "something of %s is planted", table)
		}
	}
	require.NotZero(t, b.count(t, "archive_parts"))
	kept := b.id
	b.plant(t)
	purged := b.id

	requested, err := b.PurgeRequest(b.ctx, purged, fork.Detach)
	require.NoError(t, err)
	require.Equal(t, purge.Stopping, requested.Purge.State)
	requireCode(t, failure.IllegalState, b.PurgeContent(b.ctx, purged)) // the session runs
	b.transit(t, session.EventStop, planted)
	require.NoError(t, b.SandboxEnd(b.ctx, purged, 1, planted))
	taken, err := b.PurgesTake(b.ctx, 10)
	require.NoError(t, err)
	require.Len(t, taken, 1)
	again, err := b.PurgesTake(b.ctx, 10)
	require.NoError(t, err)
	require.Empty(t, again, "it is in the hands of the first")

	require.NoError(t, b.PurgeSet(b.ctx, purged, purge.Erasing, 0))
	require.NoError(t, b.PurgeContent(b.ctx, purged))
	_, err = b.EventsPage(b.ctx, purged, 0, 10)
	var gone *eventlog.PositionGoneError
	require.ErrorAs(t, err, &gone)
	s, err := b.SessionGet(b.ctx, purged)
	require.NoError(t, err)
	require.Equal(t, purge.Erasing, s.Purge.State)
	require.Empty(t, s.Title)
	title := planted // a terminated session may be renamed
	_, err = b.SessionPatch(b.ctx, purged, session.Patch{Title: &title})
	require.NoError(t, err)
	requireCode(t, failure.IllegalState, b.PurgeSession(b.ctx, purged)) // its images remain
	left, err := b.PurgeImages(b.ctx, purged)
	require.NoError(t, err)
	require.EqualValues(t, 2, left, "the snapshot and the exit image")
	b.sql(t, "DELETE FROM exit_images WHERE session_id = $1", purged)
	condemned, err := b.SnapshotsCondemn(b.ctx, 10)
	require.NoError(t, err)
	require.Equal(t, []string{"im-" + purged}, condemned)
	require.NoError(t, b.SnapshotsForget(b.ctx, condemned))
	for range 2 {
		require.NoError(t, b.PurgeSession(b.ctx, purged))
	}
	require.Equal(t, []string{"purges"}, find(t, b.url, purged))
	for _, table := range []string{"archives", "archive_parts"} {
		require.Equal(t, 1, b.count(t, table), "%s of the other session", table)
	}
	_, err = b.SessionGet(b.ctx, purged)
	requireCode(t, failure.NoSession, err)
	_, err = b.PurgeRequest(b.ctx, purged, fork.Detach)
	requireCode(t, failure.NoSession, err)
	_, _, err = b.SessionCreate(b.ctx, session.Session{ID: purged, Agent: "demo"}, nil, session.Idempotency{})
	requireCode(t, failure.IllegalState, err)
	require.NoError(t, b.PurgeSet(b.ctx, purged, purge.Checking, 0))
	require.NoError(t, b.PurgeSet(b.ctx, purged, purge.Erased, 0))
	_, _, err = b.SessionCreate(b.ctx, session.Session{ID: purged, Agent: "demo"}, nil, session.Idempotency{})
	requireCode(t, failure.IllegalState, err)

	b.id = kept
	require.Equal(t, where, find(t, b.url, planted), "the other session is as it was")
	require.NotEmpty(t, b.events(t))
}

// TestEveryTableWithSessionDataIsPurged fails for a new table that is neither purged nor listed
// here with the reason.
func TestEveryTableWithSessionDataIsPurged(t *testing.T) {
	t.Parallel()
	b := setup(t)
	exempt := map[string]string{
		"sessions":         "the row is deleted last",
		"event_log":        "its rows are deleted by PurgeContent",
		"archives":         "PurgeSession deletes those that no bundle needs any more",
		"archive_parts":    "they are deleted with their archives",
		"session_labels":   "a trigger deletes them with the row",
		"session_activity": "a trigger deletes it with the row",
		"exit_images":      "a row ends when its image is found; the row of the session is kept until then",
		"purges":           "the tombstones",
		"image_intents":    "IDs alone; a row ends when the purge has listed the images of its session, or the image has expired",
		"breakers":         "of the installation: hashes stand for sessions",
		"installation":     "of the installation",
		"secrets":          "of the installation: no secret belongs to a session",
		"replaced_secrets": "of the installation",
		"profiles":         "of the installation",
		"profile_versions": "of the installation",
		"base_images":      "of the installation: they have no files of a session",
		"webhooks":         "of the installation",
		"webhook_attempts": "they are deleted with their deliveries",
		"lifecycle_head":   "numbers of the installation: they name no session",
		"session_counts":   "numbers of the installation: they name no session",
		"write_probe":      "of the installation",
		"outages":          "of the installation: they name no session",
		"goose_db_version": "of the schema",
	}
	tables := strings.Fields(query[string](b.ctx, t, b.url,
		"SELECT string_agg(table_name, ' ' ORDER BY table_name) FROM information_schema.tables WHERE table_schema = 'public' AND table_type = 'BASE TABLE'"))
	require.Greater(t, len(tables), 20)
	purged := postgres.PurgeTables()
	for _, table := range tables {
		if exempt[table] == "" {
			require.Contains(t, purged, table, "add it to purgeContent or purgeRecords in purge.go, or to this test with the reason why it is kept")
		}
	}
	for _, table := range purged {
		require.True(t, slices.Contains(tables, table), table)
	}
}

// TestInterruptedPurgeIsResumed terminates connections of a purge at random.
func TestInterruptedPurgeIsResumed(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.plant(t)
	b.sql(t, `INSERT INTO event_log SELECT no, last_seq + g, now(), 0, 1, 'error', '{}' FROM sessions, generate_series(1, 20000) g WHERE id = $1`, b.id)
	b.sql(t, `UPDATE sessions SET last_seq = last_seq + 20000 WHERE id = $1`, b.id)
	_, err := b.PurgeRequest(b.ctx, b.id, fork.Detach)
	require.NoError(t, err)
	b.transit(t, session.EventStop, "")
	b.sql(t, "UPDATE snapshots SET deleted_at = now()")
	stop := b.terminateConnections(t)
	interrupted := 0
	require.Eventually(t, func() bool {
		if b.PurgeContent(b.ctx, b.id) != nil {
			interrupted++
			return false
		}
		return true
	}, waitLimit, time.Millisecond)
	stop()
	require.NoError(t, b.SandboxEnd(b.ctx, b.id, 1, ""))
	b.sql(t, "DELETE FROM exit_images")
	require.NoError(t, b.PurgeSession(b.ctx, b.id))
	require.Equal(t, []string{"purges"}, find(t, b.url, b.id))
	require.Empty(t, find(t, b.url, planted))
	t.Logf("interrupted %d times", interrupted)
}

// TestRetention purges terminated sessions, oldest first and some at a time, and deletes old events
// of sleeping ones, with any number of concurrent calls.
func TestRetention(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var terminated []string
	for i := range 5 {
		b.id = b.session(t)
		b.transit(t, session.EventStop, "")
		b.sql(t, "UPDATE session_transitions SET at = now() - make_interval(days => $2) WHERE session_id = $1 AND to_status = 'terminated'", b.id, 10-i)
		terminated = append(terminated, b.id)
	}
	n, err := b.PurgeTerminated(b.ctx, 204*time.Hour, 2)
	require.NoError(t, err)
	require.Equal(t, 2, n)
	n, err = b.PurgeTerminated(b.ctx, 204*time.Hour, 2)
	require.NoError(t, err)
	require.Zero(t, n, "two are in progress")
	taken, err := b.PurgesTake(b.ctx, 10)
	require.NoError(t, err)
	require.Len(t, taken, 2)
	require.ElementsMatch(t, terminated[:2], []string{taken[0].SessionID, taken[1].SessionID}, "the oldest")
	for _, p := range taken {
		require.NoError(t, b.PurgeSet(b.ctx, p.SessionID, purge.Checking, 0))
		require.NoError(t, b.PurgeSet(b.ctx, p.SessionID, purge.Erased, 0))
	}
	n, err = b.PurgeTerminated(b.ctx, 204*time.Hour, 2)
	require.NoError(t, err)
	require.Zero(t, n, "the third was terminated 8 days ago")

	type sleeper struct {
		id     string
		sleeps bool
	}
	var sleepers []sleeper
	for i := range 60 {
		b.id = b.session(t)
		b.running(t)
		for range 20 {
			verdicts, err := b.EventsAppend(b.ctx, []eventlog.Append{{SessionID: b.id, Generation: 1, Events: []eventlog.Draft{{Type: "error", Data: []byte(`{}`)}}}})
			require.NoError(t, err)
			require.NoError(t, verdicts[0])
		}
		if i%2 == 0 {
			b.transit(t, session.EventHibernate, "")
			b.transit(t, session.EventSaved, "")
		}
		sleepers = append(sleepers, sleeper{b.id, i%2 == 0})
	}
	b.sql(t, "UPDATE event_log SET at = at - interval '100 days' WHERE seq <= 15")
	var after, pruned int64
	passes := 1
	for ; passes == 1 || after != 0; passes++ {
		var n int64
		after, n, err = b.EventsRetain(b.ctx, 90*24*time.Hour, after, 7)
		require.NoError(t, err)
		pruned += n
	}
	require.Greater(t, passes, 5, "each looks at a bounded number of sessions")
	require.EqualValues(t, 30*15, pruned)
	for _, s := range sleepers {
		b.id = s.id
		_, err := b.EventsPage(b.ctx, b.id, 0, 10)
		if !s.sleeps {
			require.NoError(t, err)
			continue
		}
		var gone *eventlog.PositionGoneError
		require.ErrorAs(t, err, &gone)
		require.EqualValues(t, 16, gone.First)
		page, err := b.EventsPage(b.ctx, b.id, 15, 100)
		require.NoError(t, err)
		require.EqualValues(t, 16, page[0].Seq)
	}
	// A call that was interrupted after it had recorded the new beginning.
	b.sql(t, "INSERT INTO event_log SELECT no, 3, now(), 0, 0, 'error', '{}' FROM sessions WHERE id = $1", sleepers[0].id)
	_, _, err = b.EventsRetain(b.ctx, 90*24*time.Hour, 0, 1000)
	require.NoError(t, err)
	require.Zero(t, query[int](b.ctx, t, b.url, "SELECT count(*)::int FROM event_log e JOIN sessions s ON s.no = e.session_no WHERE e.seq < s.first_seq"))
}

func TestLockedSessionDoesNotKeepOthersFromRetention(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var ids []string
	for range 2 {
		b.id = b.session(t)
		b.running(t)
		for range 3 {
			verdicts, err := b.EventsAppend(b.ctx, []eventlog.Append{{SessionID: b.id, Generation: 1, Events: []eventlog.Draft{{Type: "error", Data: []byte(`{}`)}}}})
			require.NoError(t, err)
			require.NoError(t, verdicts[0])
		}
		b.transit(t, session.EventHibernate, "")
		b.transit(t, session.EventSaved, "")
		ids = append(ids, b.id)
	}
	b.sql(t, "UPDATE event_log SET at = at - interval '100 days'")
	release := b.lock(t, ids[0])
	hurried := b.open(t, postgres.Options{LockTimeout: 100 * time.Millisecond})
	next, pruned, err := hurried.EventsRetain(b.ctx, 90*24*time.Hour, 0, 10)
	require.ErrorContains(t, err, ids[0])
	require.Zero(t, next, "it has looked at all")
	require.Positive(t, pruned)
	release()
	_, again, err := hurried.EventsRetain(b.ctx, 90*24*time.Hour, 0, 10)
	require.NoError(t, err)
	require.Equal(t, pruned, again, "the session that was locked has its turn in the next round")
}

// TestPurgeOnlyAdvances checks that a late result of a worker that lost its lease does not reset
// the purge.
func TestPurgeOnlyAdvances(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.session(t)
	_, err := b.PurgeRequest(b.ctx, id, fork.Detach)
	require.NoError(t, err)
	states := []purge.State{purge.Stopping, purge.Erasing, purge.Checking, purge.Erased}
	for i, state := range states {
		require.NoError(t, b.PurgeSet(b.ctx, id, state, 0))
		for _, late := range states[:i] {
			require.NoError(t, b.PurgeSet(b.ctx, id, late, 0))
			require.Equal(t, string(state), query[string](b.ctx, t, b.url, "SELECT state FROM purges WHERE session_id = $1", id))
		}
	}
	require.False(t, query[bool](b.ctx, t, b.url, "SELECT erased_at IS NULL FROM purges WHERE session_id = $1", id))
}

// TestImageRecordedAfterPurgeIsDeleted has one worker make images of a session while another one
// erases it.
func TestImageRecordedAfterPurgeIsDeleted(t *testing.T) {
	t.Parallel()
	records := map[string]func(b *harness, intent image.Intent) error{
		"made": func(b *harness, intent image.Intent) error { return b.SnapshotMade(b.ctx, intent, "im-late") },
		"replaced": func(b *harness, intent image.Intent) error {
			return b.SnapshotReplace(b.ctx, intent, "im-old", "im-late")
		},
		"without an intent": func(b *harness, intent image.Intent) error {
			require.NoError(t, b.ImageIntentEnd(b.ctx, intent.ID))
			return b.SnapshotRecord(b.ctx, intent.SessionID, intent.Generation, "im-late")
		},
	}
	for name, record := range records {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.running(t)
			intent := b.intent(t)
			_, err := b.PurgeRequest(b.ctx, b.id, fork.Detach)
			require.NoError(t, err)
			b.transit(t, session.EventStop, "")
			require.NoError(t, b.SandboxEnd(b.ctx, b.id, 1, ""))
			b.sql(t, "DELETE FROM exit_images")
			require.NoError(t, b.PurgeContent(b.ctx, b.id))
			require.NoError(t, b.PurgeSession(b.ctx, b.id))
			require.NoError(t, record(b, intent))
			condemned, err := b.SnapshotsCondemn(b.ctx, 10)
			require.NoError(t, err)
			require.Equal(t, []string{"im-late"}, condemned)
			require.Equal(t, []string{"purges"}, find(t, b.url, b.id))
		})
	}
}

// TestPurgeKeepsConcurrentlyRecordedImage has a late worker record images while the last rows of a
// session are deleted, after the purge has found that no image remains.
func TestPurgeKeepsConcurrentlyRecordedImage(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.running(t)
	_, err := b.PurgeRequest(b.ctx, b.id, fork.Detach)
	require.NoError(t, err)
	b.transit(t, session.EventStop, "")
	require.NoError(t, b.SandboxEnd(b.ctx, b.id, 1, ""))
	b.sql(t, "DELETE FROM exit_images")
	require.NoError(t, b.PurgeContent(b.ctx, b.id))
	b.sql(t, `CREATE FUNCTION late() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		INSERT INTO snapshots (id, session_id, generation, unneeded_at) VALUES ('im-late', OLD.id, 1, now()) ON CONFLICT DO NOTHING;
		INSERT INTO exit_images (sandbox_id, session_id, generation) VALUES ('sb-late', OLD.id, 1) ON CONFLICT DO NOTHING;
		RETURN NULL;
	END $$`)
	b.sql(t, "CREATE TRIGGER late AFTER UPDATE OF head_bundle_id ON sessions FOR EACH ROW EXECUTE FUNCTION late()")
	requireCode(t, failure.IllegalState, b.PurgeSession(b.ctx, b.id))
	requireCode(t, failure.IllegalState, b.PurgeSession(b.ctx, b.id))
	condemned, err := b.SnapshotsCondemn(b.ctx, 10)
	require.NoError(t, err)
	require.Equal(t, []string{"im-late"}, condemned)
	require.NoError(t, b.SnapshotsForget(b.ctx, condemned))
	exits, err := b.ExitImagesDue(b.ctx, 10)
	require.NoError(t, err)
	require.Len(t, exits, 1)
	require.NoError(t, b.ExitImagesSettle(b.ctx, exits))
	b.sql(t, "DROP TRIGGER late ON sessions")
	require.NoError(t, b.PurgeSession(b.ctx, b.id))
	require.Equal(t, []string{"purges"}, find(t, b.url, b.id))
}

// TestSnapshotIsRecordedWhileItsSessionIsDeleted: the row of the session exists when the statement begins, and is deleted before the
// foreign key is checked.
func TestSnapshotIsRecordedWhileItsSessionIsDeleted(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.session(t)
	conn, err := pgx.Connect(b.ctx, b.url)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conn.Close(context.Background())) })
	tx, err := conn.Begin(b.ctx)
	require.NoError(t, err)
	_, err = tx.Exec(b.ctx, "DELETE FROM session_transitions WHERE session_id = $1", id)
	require.NoError(t, err)
	_, err = tx.Exec(b.ctx, "DELETE FROM sessions WHERE id = $1", id)
	require.NoError(t, err)
	recorded := make(chan error, 1) // one send
	go func() { recorded <- b.SnapshotRecord(b.ctx, id, 1, "im-late") }()
	require.Eventually(t, func() bool {
		return query[bool](b.ctx, t, b.url, "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')")
	}, waitLimit, 10*time.Millisecond)
	require.NoError(t, tx.Commit(b.ctx))
	require.NoError(t, <-recorded)
	require.Equal(t, []string{"im-late"}, b.condemned(t))
}

// TestWorkflowStartedAfterPurgeIsErased has a process that was frozen signal the workflow of a
// deleted session.
func TestWorkflowStartedAfterPurgeIsErased(t *testing.T) {
	t.Parallel()
	for _, state := range []purge.State{purge.Checking, purge.Erased} {
		t.Run(string(state), func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			id := b.id
			_, err := b.PurgeRequest(b.ctx, id, fork.Detach)
			require.NoError(t, err)
			b.transit(t, session.EventStop, "")
			require.NoError(t, b.PurgeContent(b.ctx, id))
			require.NoError(t, b.PurgeSession(b.ctx, id))
			require.NoError(t, b.PurgeSet(b.ctx, id, purge.Checking, time.Hour))
			require.NoError(t, b.PurgeSet(b.ctx, id, state, time.Hour))

			_, err = b.SessionOpen(b.ctx, id, "w-late")
			requireCode(t, failure.NoSession, err)
			// The earlier result of another worker is outdated.
			require.NoError(t, b.PurgeSet(b.ctx, id, purge.Erased, 0))
			taken, err := b.PurgesTake(b.ctx, 10)
			require.NoError(t, err)
			require.Len(t, taken, 1)
			require.Equal(t, purge.Erasing, taken[0].State)
			_, _, err = b.SessionCreate(b.ctx, session.Session{ID: id, Agent: "demo"}, nil, session.Idempotency{})
			requireCode(t, failure.IllegalState, err)
		})
	}
	b := setup(t)
	_, err := b.SessionOpen(b.ctx, session.NewID(session.SessionPrefix), "w-none")
	requireCode(t, failure.NoSession, err)
	require.Zero(t, query[int](b.ctx, t, b.url, "SELECT count(*)::int FROM purges"))
}
