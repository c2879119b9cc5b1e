package postgres_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/eventlog"
	"github.com/overwinter-dev/overwinter/internal/lifecycle"
	"github.com/overwinter-dev/overwinter/internal/question"
	"github.com/overwinter-dev/overwinter/internal/run"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// lifecycle assigns positions to new events, and returns the events after a position.
func (b *harness) lifecycle(t *testing.T, after int64, filter lifecycle.Filter) lifecycle.Page {
	t.Helper()
	_, err := b.LifecycleNumber(b.ctx)
	require.NoError(t, err)
	page, err := b.LifecycleRead(b.ctx, after, filter, 1000)
	require.NoError(t, err)
	return page
}

func lifecycleTypes(page lifecycle.Page) (types []lifecycle.Type) {
	for _, e := range page.Events {
		types = append(types, e.Type)
	}
	return types
}

func TestLifecycleEventsCoverSession(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.running(t)
	first, second := b.submit(t, "one"), b.submit(t, "two")
	runID := b.begin(t, first)
	require.NoError(t, b.appendOne(t, eventlog.Append{
		SessionID: b.id, RunID: runID, Generation: 1, Token: "t1", LastFrame: 1,
		Questions: []eventlog.Question{{Frame: 1, Asked: question.Asked{ID: "q", Kind: question.Permission, ToolName: "Bash", Input: json.RawMessage(`{"command":"ls"}`)}}},
	}))
	require.NoError(t, b.appendOne(t, eventlog.Append{
		SessionID: b.id, RunID: runID, Generation: 1, Token: "t1", LastFrame: 2, Resolved: []eventlog.Resolution{{Frame: 2, AgentID: "q"}},
	}))
	_, err := b.RunEnd(b.ctx, run.Ending{RunID: runID, Token: "t1", Outcome: session.OutcomeCompleted})
	require.NoError(t, err)
	page := b.lifecycle(t, 0, lifecycle.Filter{})
	require.Equal(t, []lifecycle.Type{
		lifecycle.SessionCreated, lifecycle.SessionRunning, lifecycle.SessionTitle, lifecycle.QuestionAsked, lifecycle.QuestionResolved, lifecycle.PromptCompleted,
	}, lifecycleTypes(page), "a prompt waits: it is not idle")
	require.True(t, page.CaughtUp)

	_, err = b.PromptWithdraw(b.ctx, b.id, second)
	require.NoError(t, err)
	b.transit(t, session.EventHibernate, session.ReasonIdle)
	b.transit(t, session.EventStop, "")
	next := b.lifecycle(t, page.Position, lifecycle.Filter{})
	require.Equal(t, []lifecycle.Type{lifecycle.PromptCancelled, lifecycle.SessionCompleted}, lifecycleTypes(next),
		"it was terminated before it was seen to be idle")
	events := map[int64]eventlog.Event{}
	for _, e := range b.events(t) {
		events[e.Seq] = e
	}
	for _, e := range append(page.Events[1:], next.Events...) {
		require.Equal(t, b.id, e.Session.ID)
		require.Equal(t, session.Terminated, next.Events[0].Session.Status)
		require.JSONEq(t, string(events[e.Seq].Data), string(e.Data))
		require.True(t, events[e.Seq].At.Equal(e.At))
	}

	require.Equal(t, []lifecycle.Type{lifecycle.QuestionAsked}, lifecycleTypes(b.lifecycle(t, 0, lifecycle.Filter{Types: []lifecycle.Type{lifecycle.QuestionAsked}})))
	require.Empty(t, b.lifecycle(t, 0, lifecycle.Filter{Agent: "other"}).Events)
	_, err = b.LifecycleRead(b.ctx, next.Position+1, lifecycle.Filter{}, 10)
	var future *eventlog.FuturePositionError
	require.ErrorAs(t, err, &future)
	require.Equal(t, next.Position, future.Newest)
}

func TestIdleSessionIsReportedOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.running(t)
	for range 3 {
		runID := b.begin(t, b.submit(t, "word"))
		_, err := b.RunEnd(b.ctx, run.Ending{RunID: runID, Token: "t1", Outcome: session.OutcomeFailed})
		require.NoError(t, err)
	}
	require.Equal(t, []lifecycle.Type{
		lifecycle.SessionCreated, lifecycle.SessionRunning, lifecycle.SessionTitle, lifecycle.PromptFailed, lifecycle.PromptFailed, lifecycle.PromptFailed, lifecycle.SessionIdle,
	}, lifecycleTypes(b.lifecycle(t, 0, lifecycle.Filter{})))
	again, err := b.LifecycleNumber(b.ctx)
	require.NoError(t, err)
	require.False(t, again)
}

// TestLifecycleEventsAreReadOnceAndInOrder commits transactions of many sessions in random order
// while positions are assigned and read.
func TestLifecycleEventsAreReadOnceAndInOrder(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const sessions, each = 8, 25
	var writers, others sync.WaitGroup
	done := make(chan struct{})
	for range sessions {
		own := &harness{DB: b.DB, url: b.url, ctx: b.ctx}
		own.id = own.session(t)
		conn, err := pgx.Connect(b.ctx, b.url)
		require.NoError(t, err)
		random := rand.New(rand.NewPCG(1, uint64(len(own.id)))) //nolint:gosec // only a test
		writers.Go(func() {
			defer conn.Close(b.ctx)
			for i := range each {
				tx, err := conn.Begin(b.ctx)
				if !noError(t, err) {
					return
				}
				// The transaction gets its number before it locks the session, so that transactions
				// do not commit in the order in which they began.
				_, err = tx.Exec(b.ctx, "SELECT pg_current_xact_id(), pg_sleep($1)", random.Float64()/200)
				noError(t, err)
				_, err = tx.Exec(b.ctx, "UPDATE sessions SET last_seq = last_seq + 1 WHERE id = $1", own.id)
				noError(t, err)
				_, err = tx.Exec(b.ctx, `INSERT INTO event_log (session_no, seq, at, run_no, conversation_no, type, data)
					SELECT no, last_seq, now(), 0, 0, 'status', '{"status":"running"}' FROM sessions WHERE id = $1`, own.id)
				noError(t, err)
				_, err = tx.Exec(b.ctx, "SELECT pg_sleep($1)", random.Float64()/200)
				noError(t, err)
				if i%5 == 4 {
					noError(t, tx.Rollback(b.ctx))
				} else {
					noError(t, tx.Commit(b.ctx))
				}
			}
		})
	}
	for range 2 {
		others.Go(func() {
			for {
				_, err := b.LifecycleNumber(b.ctx)
				noError(t, err)
				select {
				case <-done:
					return
				default:
				}
			}
		})
	}
	seen, last := map[string]int64{}, int64(0)
	read := func() {
		for {
			page, err := b.LifecycleRead(b.ctx, last, lifecycle.Filter{}, 7)
			require.NoError(t, err)
			for _, e := range page.Events {
				require.Greater(t, e.Position, last)
				last = e.Position
				if e.Type == lifecycle.SessionRunning {
					require.Equal(t, seen[e.Session.ID]+1, e.Seq, "of %s", e.Session.ID)
					seen[e.Session.ID] = e.Seq
				}
			}
			last = page.Position
			if page.CaughtUp {
				return
			}
		}
	}
	go func() { writers.Wait(); close(done) }()
	for open := true; open; {
		select {
		case <-done:
			open = false
		default:
		}
		read()
	}
	others.Wait()
	_, err := b.LifecycleNumber(b.ctx)
	require.NoError(t, err)
	read()
	require.Len(t, seen, sessions)
	for id, seq := range seen {
		require.EqualValues(t, each*4/5, seq, id)
	}
}

// noError is require.NoError for goroutines.
func noError(t *testing.T, err error) bool {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
	return err == nil
}

func TestOldLifecycleEventsAreDeleted(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.running(t)
	old := b.lifecycle(t, 0, lifecycle.Filter{})
	later := time.Now().Add(time.Hour)
	more, err := b.LifecycleDelete(b.ctx, time.Now().Add(-time.Hour))
	require.NoError(t, err)
	require.False(t, more)
	require.Equal(t, old, b.lifecycle(t, 0, lifecycle.Filter{}))
	more, err = b.LifecycleDelete(b.ctx, later)
	require.NoError(t, err)
	require.False(t, more)
	_, err = b.LifecycleRead(b.ctx, 0, lifecycle.Filter{}, 10)
	var gone *eventlog.PositionGoneError
	require.ErrorAs(t, err, &gone)
	require.Equal(t, old.Position+1, gone.First)
	b.transit(t, session.EventHibernate, session.ReasonIdle)
	b.transit(t, session.EventSaved, "")
	require.Equal(t, fmt.Sprint([]lifecycle.Type{lifecycle.SessionHibernated}), fmt.Sprint(lifecycleTypes(b.lifecycle(t, old.Position, lifecycle.Filter{}))))
}

// TestPageOfLifecycleEventsIsBoundedInBytes checks that several pages together contain each of the
// large events once. Events that the filter excludes do not count.
func TestPageOfLifecycleEventsIsBoundedInBytes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.running(t)
	run := b.begin(t, b.submit(t, "one"))
	const questions = 8
	for i := range questions {
		require.NoError(t, b.appendOne(t, eventlog.Append{
			SessionID: b.id, RunID: run, Generation: 1, Token: "t1", LastFrame: int64(i + 1),
			Questions: []eventlog.Question{{Frame: int64(i + 1), ExpiresAt: time.Now().Add(time.Hour), Asked: question.Asked{
				ID: fmt.Sprint(i), Kind: question.Permission, ToolName: "Bash", Input: json.RawMessage(`"` + strings.Repeat("x", 300<<10) + `"`),
			}}},
		}))
	}
	read := func(filter lifecycle.Filter) (events, pages int) {
		for position := int64(0); ; pages++ {
			page := b.lifecycle(t, position, filter)
			bytes := 0
			for _, e := range page.Events {
				require.Greater(t, e.Position, position)
				position = e.Position
				bytes += len(e.Data)
			}
			require.LessOrEqual(t, bytes, 1<<20)
			events += len(page.Events)
			if position = page.Position; page.CaughtUp {
				return events, pages + 1
			}
		}
	}
	asked := lifecycle.Filter{Types: []lifecycle.Type{lifecycle.QuestionAsked}}
	events, pages := read(asked)
	require.Equal(t, questions, events)
	require.Equal(t, 3, pages)
	asked.Metadata = map[string]string{"team": "a"}
	events, pages = read(asked)
	require.Zero(t, events)
	require.Equal(t, 1, pages)
	_, err := b.SessionPatch(b.ctx, b.id, session.Patch{Metadata: json.RawMessage(`{"team":"a","n":7}`)})
	require.NoError(t, err)
	events, _ = read(asked)
	require.Equal(t, questions, events)
}
