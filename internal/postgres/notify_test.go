package postgres_test

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/eventlog"
	"github.com/overwinter-dev/overwinter/internal/postgres"
	"github.com/overwinter-dev/overwinter/internal/postgres/postgrestest"
	"github.com/overwinter-dev/overwinter/internal/question"
	"github.com/overwinter-dev/overwinter/internal/run"
	"github.com/overwinter-dev/overwinter/internal/session"
	"github.com/overwinter-dev/overwinter/internal/workspacefile"
)

// listen collects the sessions that are reported to one listener until the test ends.
func (b *harness) listen(t *testing.T) (notified func() []string) {
	t.Helper()
	reports := b.reports(t)
	return func() (sessions []string) {
		for _, g := range reports() {
			sessions = append(sessions, g.SessionID)
		}
		return sessions
	}
}

// reports collects the reports of one listener until the test ends. One of all sessions has the id
// "*".
func (b *harness) reports(t *testing.T) (reports func() []eventlog.Growth) {
	t.Helper()
	return reportsTo(t, b)
}

func reportsTo(t *testing.T, source eventlog.Source) (reports func() []eventlog.Growth) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var mu sync.Mutex
	var all []eventlog.Growth
	ready, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		source.EventsListen(ctx, func() { close(ready) }, func(grown []eventlog.Growth) { //nolint:errcheck // returns when ctx ends
			mu.Lock()
			defer mu.Unlock()
			if grown == nil {
				grown = []eventlog.Growth{{SessionID: "*"}}
			}
			all = append(all, grown...)
		})
	}()
	t.Cleanup(func() { cancel(); <-done })
	<-ready
	return func() []eventlog.Growth {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(all)
	}
}

// TestReportedEventsAreThoseOfLog compares the events in notifications with those that readers find
// in the log.
func TestReportedEventsAreThoseOfLog(t *testing.T) {
	t.Parallel()
	b := setup(t)
	reports := b.reports(t)
	b.attended(t)
	b.submit(t, "second")
	claimed := b.claimFor(t, "a1")
	require.NotNil(t, claimed.Start)
	at := time.Now().In(time.FixedZone("elsewhere", 3600)) // with nanoseconds
	word := eventlog.Draft{Type: "text_delta", ConversationID: "main", At: at, Data: json.RawMessage(`{"blockId":"a","delta":"1 "}`)}
	other := eventlog.Draft{Type: "x", ConversationID: "other \x00", At: at, Data: json.RawMessage("{\"text\": \"two\\nlines,\",\n\"n\":1}"), Frame: 1}
	for frame, drafts := range [][]eventlog.Draft{{word}, {other}, {{Type: "title", At: at, Data: json.RawMessage(`{"title":"\ud800"}`), Frame: 2}}} {
		require.NoError(t, b.appendOne(t, eventlog.Append{
			SessionID: b.id, RunID: claimed.Start.Run.ID, Generation: b.generation(t), Token: "c1", LastFrame: int64(frame), Events: drafts,
		}))
	}
	require.NoError(t, b.appendOne(t, eventlog.Append{
		SessionID: b.id, RunID: claimed.Start.Run.ID, Generation: b.generation(t), Token: "c1", LastFrame: 3,
		Questions: []eventlog.Question{{Frame: 3, Asked: question.Asked{ID: "q", Kind: question.Permission}, At: at, ExpiresAt: at.Add(time.Minute)}},
	}))
	b.end(t, claimed.Start.Run.ID, "c1", "")
	sessions := speakers(t, b, 3)
	for frame := range int64(3) {
		var appends []eventlog.Append
		for _, s := range sessions {
			appends = append(appends, s.word(frame+1))
		}
		_, err := b.EventsTryAppend(b.ctx, appends)
		require.NoError(t, err)
	}

	stored := map[string][]eventlog.Event{}
	total := 0
	for _, id := range []string{b.id, sessions[0].id, sessions[1].id, sessions[2].id} {
		events, err := b.EventsPage(b.ctx, id, 0, 1000)
		require.NoError(t, err)
		stored[id], total = events, total+len(events)
	}
	// The creation of the first session is reported before the listener listens, that of prompts by other tests' helpers too.
	require.Eventually(t, func() bool {
		newest := map[string]bool{}
		for _, g := range reports() {
			if events := stored[g.SessionID]; len(g.Events) > 0 && g.Events[len(g.Events)-1].Seq == int64(len(events)) {
				newest[g.SessionID] = true
			}
		}
		return len(newest) == len(stored)
	}, waitLimit, time.Millisecond)
	types := map[string]int{}
	for _, g := range reports() {
		for _, e := range g.Events {
			require.Equal(t, stored[g.SessionID][e.Seq-1], e)
			types[e.Type]++
		}
	}
	for _, e := range stored[b.id] {
		require.NotZero(t, types[e.Type], "no event of the type %s was reported", e.Type)
	}
	require.Equal(t, 9, types["text_delta"]-1, "each word")
	require.GreaterOrEqual(t, types["turn_start"]+types["turn_end"], 2)
}

// TestWaitsInWorkersAreNotWokenByTurns checks that a turn, from its claim to its end, is reported to
// readers of the log, but not to attendants and to other waits in workers.
func TestWaitsInWorkersAreNotWokenByTurns(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.attended(t)
	all, outside := b.reports(t), reportsTo(t, postgres.Outside{DB: b.DB})
	count := func() (n int) {
		for _, g := range outside() {
			if g.SessionID == b.id {
				n++
			}
		}
		return n
	}
	reported := func(of func() []eventlog.Growth, seq int64) bool {
		return slices.ContainsFunc(of(), func(g eventlog.Growth) bool {
			return g.SessionID == b.id && len(g.Events) > 0 && g.Events[len(g.Events)-1].Seq >= seq
		})
	}
	prompt := b.submit(t, "second")
	submitted := b.position(t)
	require.Eventually(t, func() bool { return reported(outside, submitted) }, waitLimit, time.Millisecond, "an attendant claims it")
	before := count()

	claimed := b.claimFor(t, "a1")
	require.NotNil(t, claimed.Start)
	require.Equal(t, prompt, claimed.Start.Prompt.ID)
	require.NoError(t, b.FilesAppend(b.ctx, workspacefile.Batch{
		SessionID: b.id, RunID: claimed.Start.Run.ID, Token: "c1", Generation: b.generation(t), Lineage: "l1",
		Changes: []workspacefile.Change{written(1, "a", "1")},
	}))
	for frame := range int64(3) {
		require.NoError(t, b.appendOne(t, eventlog.Append{
			SessionID: b.id, RunID: claimed.Start.Run.ID, Generation: b.generation(t), Token: "c1", LastFrame: frame,
			Events: []eventlog.Draft{{Type: "x", At: time.Now(), Frame: frame, Data: json.RawMessage(`{}`)}},
		}))
	}
	asked := eventlog.Append{
		SessionID: b.id, RunID: claimed.Start.Run.ID, Generation: b.generation(t), Token: "c1", LastFrame: 3,
		Questions: []eventlog.Question{{Frame: 3, Asked: question.Asked{ID: "q", Kind: question.Permission}, At: time.Now(), ExpiresAt: time.Now().Add(time.Minute)}},
	}
	require.NoError(t, b.appendOne(t, asked))
	withdrawn := asked
	withdrawn.LastFrame, withdrawn.Questions, withdrawn.Resolved = 4, nil, []eventlog.Resolution{{Frame: 4, AgentID: "q"}}
	require.NoError(t, b.appendOne(t, withdrawn))
	at := b.position(t)
	require.Eventually(t, func() bool { return count() == before+1 && reported(all, at) }, waitLimit, time.Millisecond, "the turn waits for its answer")
	require.NoError(t, b.appendOne(t, eventlog.Append{
		SessionID: b.id, RunID: claimed.Start.Run.ID, Generation: b.generation(t), Token: "c1", LastFrame: 5,
		Events: []eventlog.Draft{draft("block_start", 5, 0, `{"block":{"id":"b1","type":"assistant_text","status":"streaming"}}`)},
	}))
	_, err := b.RunEnd(b.ctx, run.Ending{
		RunID: claimed.Start.Run.ID, Token: "c1", Outcome: session.OutcomeCompleted, RecheckFor: "w1", Attend: "a1",
		Last: &eventlog.Append{
			SessionID: b.id, RunID: claimed.Start.Run.ID, Generation: b.generation(t), Token: "c1", LastFrame: 6,
			Events: []eventlog.Draft{closed(6, "b1")},
		},
	})
	require.NoError(t, err)
	ended := b.position(t)
	require.Eventually(t, func() bool { return reported(all, ended) }, waitLimit, time.Millisecond)

	b.command(t, session.CommandSync)
	require.Eventually(t, func() bool { return reported(outside, ended+1) }, waitLimit, time.Millisecond, "an attendant leaves")
	require.Equal(t, before+2, count(), "only of the withdrawal and the command")
}

func TestReadersAreNotifiedAfterCommit(t *testing.T) {
	t.Parallel()
	b := setup(t)
	notified := b.listen(t)
	b.submit(t, "hello")
	require.Eventually(t, func() bool { return len(notified()) > 0 }, waitLimit, time.Millisecond)
	require.Contains(t, notified(), b.id)

	other := b.session(t)
	require.NoError(t, b.appendOne(t, eventlog.Append{SessionID: other, Events: []eventlog.Draft{draft("x", 0, 0, `{}`)}}))
	require.Eventually(t, func() bool { return slices.Contains(notified(), other) }, waitLimit, time.Millisecond)
}

// TestCommitsDoNotWaitForOthersToNotify makes a transaction that notifies hang in its commit,
// because a standby is missing. Postgres serializes such commits across all databases of a server.
func TestCommitsDoNotWaitForOthersToNotify(t *testing.T) {
	t.Parallel()
	server := postgrestest.StartServer(t, shortDir(t))
	b := &harness{url: server.URL(t) + "&synchronous_commit=local", ctx: t.Context()}
	b.DB = postgrestest.Open(t, b.url)
	b.id = b.session(t)
	b.sql(t, "CREATE TABLE other (id int)")
	b.sql(t, "ALTER SYSTEM SET synchronous_standby_names = 'absent'")
	b.sql(t, "SELECT pg_reload_conf()")
	conn, err := pgx.Connect(t.Context(), b.url)
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		var names string
		err := conn.QueryRow(b.ctx, "SELECT current_setting('synchronous_standby_names')").Scan(&names)
		return err == nil && names == "absent"
	}, waitLimit, 10*time.Millisecond)
	var released atomic.Bool
	hangs := make(chan error, 1) // one send
	go func() {
		defer conn.Close(context.Background())
		for { // commits wait only after the checkpointer has read the setting, too
			_, err := conn.Exec(context.Background(), "BEGIN; SET LOCAL synchronous_commit = on; INSERT INTO other VALUES (1); NOTIFY elsewhere; COMMIT")
			if err != nil || released.Load() {
				hangs <- err
				return
			}
		}
	}()
	hanging := func() bool {
		return b.count(t, `pg_stat_activity a JOIN pg_locks l ON l.pid = a.pid
			WHERE a.wait_event = 'SyncRep' AND l.locktype = 'object' AND l.classid = 1262 AND l.objid = 0 AND l.granted`) > 0
	}
	require.Eventually(t, hanging, waitLimit, 10*time.Millisecond)

	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	for range 5 {
		_, _, _, err := b.PromptSubmit(ctx, prompt(b.id))
		require.NoError(t, err)
		verdicts, err := b.EventsAppend(ctx, []eventlog.Append{{SessionID: b.id, Events: []eventlog.Draft{draft("x", 0, 0, `{}`)}}})
		require.NoError(t, err)
		require.NoError(t, verdicts[0])
	}
	require.True(t, hanging(), "the other commit hangs all the time")
	released.Store(true)
	b.sql(t, "ALTER SYSTEM RESET synchronous_standby_names")
	b.sql(t, "SELECT pg_reload_conf()")
	require.NoError(t, <-hangs)
}

// count counts rows.
func (b *harness) count(t *testing.T, from string) (n int) {
	t.Helper()
	conn, err := pgx.Connect(b.ctx, b.url)
	require.NoError(t, err)
	defer conn.Close(b.ctx)
	require.NoError(t, conn.QueryRow(b.ctx, "SELECT count(*) FROM "+from).Scan(&n))
	return n
}

func TestPollingFindsLostNotification(t *testing.T) {
	t.Parallel()
	b := setup(t)
	f := eventlog.NewFollower(b.DB, eventlog.FollowerOptions{Poll: 20 * time.Millisecond})
	f.Start()
	t.Cleanup(f.Stop)
	r, err := f.Follow(b.ctx, b.id, 0)
	require.NoError(t, err)
	t.Cleanup(r.Close)
	got, err := r.Next(b.ctx, nil)
	require.NoError(t, err)
	require.True(t, got.CaughtUp)
	// Written without a notification, like by a process that crashes right after its commit.
	b.sql(t, "UPDATE sessions SET last_seq = 1 WHERE id = $1", b.id)
	b.sql(t, "INSERT INTO events (session_id, seq, type, conversation_id, run_id, at, data) VALUES ($1, 1, 'x', '', '', now(), '{}')", b.id)
	ctx, cancel := context.WithTimeout(b.ctx, waitLimit)
	defer cancel()
	got, err = r.Next(ctx, nil)
	require.NoError(t, err)
	require.Equal(t, 1, got.Len())
}
