package postgres_test

import (
	"encoding/json"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/backlog"
	"github.com/overwinter-dev/overwinter/internal/event"
	"github.com/overwinter-dev/overwinter/internal/eventlog"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/listing"
	"github.com/overwinter-dev/overwinter/internal/run"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// holdQueue holds the queue of the session.
func (b *harness) holdQueue(t *testing.T, reason string) session.Session {
	t.Helper()
	s, err := b.SessionHold(b.ctx, b.id, reason)
	require.NoError(t, err)
	return s
}

func queueOf(t *testing.T, e eventlog.Event) (data event.QueueData) {
	t.Helper()
	require.Equal(t, event.TypeQueue, e.Type)
	require.NoError(t, json.Unmarshal(e.Data, &data))
	return data
}

func (b *harness) release(t *testing.T) *session.Prompt {
	t.Helper()
	s, next, err := b.SessionRelease(b.ctx, b.id)
	require.NoError(t, err)
	require.False(t, s.Queue.Hold.Held())
	return next
}

// claim tries to start a prompt like the workflow.
func (b *harness) claim(t *testing.T, promptID string) run.Verdict {
	t.Helper()
	verdict, err := b.RunBegin(b.ctx, b.id, promptID, session.NewID(session.RunPrefix), b.generation(t))
	require.NoError(t, err)
	return verdict
}

// TestNoPromptStartsWhileQueueIsHeld checks that the workflow claims no prompt and reads none as
// pending; the run in progress ends as usual.
func TestNoPromptStartsWhileQueueIsHeld(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.running(t)
	first, second := b.submit(t, "first"), b.submit(t, "second")
	run := b.begin(t, first)

	held := b.holdQueue(t, "I look at it")
	require.Equal(t, "I look at it", held.Queue.Hold.Reason)
	require.WithinDuration(t, time.Now(), held.Queue.Hold.Since, time.Minute)
	again, err := b.RunBegin(b.ctx, b.id, first, run, 1)
	require.NoError(t, err)
	require.True(t, again.Granted, "the run in progress keeps its prompt")

	third, _, _, err := b.PromptSubmit(b.ctx, session.Prompt{ID: "third", SessionID: b.id, Content: "third"})
	require.NoError(t, err, "prompts are accepted")
	require.False(t, third.Notify || third.Attended)
	ended := b.end(t, run, "", "")
	require.Empty(t, ended.Look.Waiting)
	require.Zero(t, ended.Look.Queued)

	verdict := b.claim(t, second)
	require.True(t, verdict.Held)
	require.False(t, verdict.Granted)
	look, err := b.SessionLook(b.ctx, b.id, "")
	require.NoError(t, err)
	require.Empty(t, look.Waiting)
	loaded, err := b.SessionOpen(b.ctx, b.id, "w1")
	require.NoError(t, err)
	require.Empty(t, loaded.Waiting)
	require.True(t, loaded.Queue.Hold.Held())
	require.EqualValues(t, 2, loaded.Queue.Queued)

	next := b.release(t)
	require.Equal(t, second, next.ID)
	require.True(t, next.Notify)
	require.True(t, b.claim(t, second).Granted)
}

// TestAttendantClaimsNothingWhileQueueIsHeld checks that it keeps the session, and claims
// after the release.
func TestAttendantClaimsNothingWhileQueueIsHeld(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.attended(t)
	b.holdQueue(t, "")
	second, _, _, err := b.PromptSubmit(b.ctx, session.Prompt{ID: "second", SessionID: b.id, Content: "second"})
	require.NoError(t, err)
	require.False(t, second.Attended, "the api does not look whether it is claimed")
	require.Equal(t, run.Claimed{Attended: true}, b.claimFor(t, "a1"))
	unclaimed, err := b.PromptsUnclaimed(b.ctx, []backlog.Unclaimed{{SessionID: b.id, PromptID: "second", Ordinal: second.Ordinal}})
	require.NoError(t, err)
	require.Empty(t, unclaimed)

	next := b.release(t)
	require.True(t, next.Attended && !next.Notify)
	require.Equal(t, "second", b.claimFor(t, "a1").Start.Prompt.ID)
}

// TestPromptDoesNotWakeSessionWithHeldQueue also checks that a prompt does not start a lazy
// session, and that a command does.
func TestPromptDoesNotWakeSessionWithHeldQueue(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.holdQueue(t, "")
	b.submit(t, "first")
	requireCode(t, failure.QueueHeld, b.GenerationReserve(b.ctx, b.id, 1, "im-1"))
	wake := b.command(t, session.CommandWake)
	require.NoError(t, b.GenerationReserve(b.ctx, b.id, 1, "im-1"))
	require.NotNil(t, wake)
	b.running(t)
	b.transit(t, session.EventHibernate, session.ReasonIdle)
	b.transit(t, session.EventSaved, session.ReasonIdle)
	requireCode(t, failure.IllegalState, b.TransitionRecord(b.ctx, b.next(t, session.EventWake, session.ReasonPrompt)))
	b.transit(t, session.EventWake, session.ReasonRequested)
	require.Nil(t, b.next(t, session.EventReady, "").Receipt)

	// A generation that was reserved before the hold is created.
	other := &harness{DB: b.DB, ctx: b.ctx}
	other.id = other.session(t)
	other.submit(t, "first")
	require.NoError(t, other.GenerationReserve(b.ctx, other.id, 1, "im-1"))
	other.holdQueue(t, "")
	require.NoError(t, other.GenerationReserve(b.ctx, other.id, 1, "im-1"))
	requireCode(t, failure.QueueHeld, other.GenerationReserve(b.ctx, other.id, 2, "im-1"))
}

// TestHoldIsIdempotent checks that a repeated hold changes nothing but the reason.
func TestHoldIsIdempotent(t *testing.T) {
	t.Parallel()
	b := setup(t)
	require.Nil(t, b.release(t), "it is not held")
	require.Zero(t, b.position(t))
	first := b.holdQueue(t, "why")
	require.Equal(t, []string{"queue"}, b.types(t, 0))
	require.Equal(t, first.Queue.Hold, b.holdQueue(t, "").Queue.Hold)
	require.Equal(t, first.Queue.Hold, b.holdQueue(t, "why").Queue.Hold)
	require.EqualValues(t, 1, b.position(t))
	other := b.holdQueue(t, "because\x00")
	require.Equal(t, session.QueueHold{Since: first.Queue.Hold.Since, Reason: "because\uFFFD"}, other.Queue.Hold)
	require.EqualValues(t, 2, b.position(t))
	listed, _, err := b.SessionList(b.ctx, listing.Filter{Limit: 10})
	require.NoError(t, err)
	require.True(t, listed[0].Queue.Hold.Held())
	b.release(t)
	require.Nil(t, b.release(t))
	require.EqualValues(t, 3, b.position(t))

	b.transit(t, session.EventStop, "")
	_, err = b.SessionHold(b.ctx, b.id, "")
	requireCode(t, failure.Terminated, err)
	_, _, err = b.SessionRelease(b.ctx, b.id)
	requireCode(t, failure.Terminated, err)
	_, err = b.SessionHold(b.ctx, "ses_none", "")
	requireCode(t, failure.NoSession, err)
}

// TestReaderKnowsQueueAfterHold covers a queue that is longer than its events, and a reader of an
// earlier version.
func TestReaderKnowsQueueAfterHold(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.running(t)
	want := make([]string, 25)
	for i := range want {
		want[i] = b.submit(t, strings.Repeat("x", i+1))
	}
	run := b.begin(t, want[0])
	b.holdQueue(t, "why")
	var queue event.Queue
	held := false
	for _, e := range b.events(t) {
		if e.Type != event.TypeQueue {
			continue
		}
		data := queueOf(t, e)
		queue.Apply(data)
		held = data.Held
	}
	require.True(t, held)
	var got []string
	for _, item := range queue.Items() {
		got = append(got, item.PromptID)
	}
	require.Equal(t, want, got)
	b.end(t, run, "", "")
	events := b.events(t)
	require.True(t, queueOf(t, events[len(events)-1]).Held, "every event of the queue has it")
}

// TestClaimsRacingWithHold checks that no claim is granted after the response to the hold.
func TestClaimsRacingWithHold(t *testing.T) {
	t.Parallel()
	shared := setup(t)
	for range 20 {
		b := &harness{DB: shared.DB, ctx: shared.ctx}
		b.id = b.session(t)
		b.attended(t)
		ids := []string{b.submit(t, "one"), b.submit(t, "two"), b.submit(t, "three")}
		var holding, granted atomic.Bool
		var wg sync.WaitGroup
		for i := range 6 {
			wg.Go(func() {
				after := holding.Load()
				var begun bool
				if i%2 == 0 {
					v, err := b.RunBegin(b.ctx, b.id, ids[0], session.NewID(session.RunPrefix), 1)
					begun = err == nil && v.Granted
				} else {
					c, err := b.RunClaim(session.WithWorkflowRun(b.ctx, "w1"), run.Claim{
						SessionID: b.id, Attendant: "a1", Generation: 1, RunID: session.NewID(session.RunPrefix), Token: "c", Attempt: 1,
					})
					begun = err == nil && c.Start != nil
				}
				if begun && after {
					granted.Store(true)
				}
			})
		}
		wg.Go(func() {
			_, err := b.SessionHold(b.ctx, b.id, "")
			if err == nil {
				holding.Store(true)
			}
		})
		wg.Wait()
		require.True(t, holding.Load())
		require.False(t, granted.Load())
		require.True(t, b.claim(t, ids[2]).Held || b.claim(t, ids[2]).HeldBy != "")
	}
}
