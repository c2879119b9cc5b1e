package postgres_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/event"
	"github.com/overwinter-dev/overwinter/internal/eventlog"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/receipt"
	"github.com/overwinter-dev/overwinter/internal/resource"
	"github.com/overwinter-dev/overwinter/internal/run"
	"github.com/overwinter-dev/overwinter/internal/session"
)

func (b *harness) lastStatus(t *testing.T) event.StatusData {
	t.Helper()
	var out event.StatusData
	for _, e := range b.events(t) {
		if e.Type == event.TypeStatus {
			out = event.StatusData{}
			require.NoError(t, json.Unmarshal(e.Data, &out))
		}
	}
	return out
}

func TestTransitionIsProjectedAndReported(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.reserve(t, 1)
	up := b.transit(t, session.EventReady, "")
	s, err := b.SessionGet(b.ctx, b.id)
	require.NoError(t, err)
	require.Equal(t, session.Running, s.Status)
	require.EqualValues(t, 1, s.TransitionNo)
	require.WithinDuration(t, up.At, s.LastActivity, time.Second)
	require.Equal(t, "sb-1", s.Sandbox.SandboxID)
	reported := b.lastStatus(t)
	require.Equal(t, session.Running, reported.Status)
	require.EqualValues(t, 1, reported.Transition)
	require.Equal(t, "sb-1", reported.Sandbox.SandboxID)
	require.Nil(t, reported.Receipt)

	down := b.next(t, session.EventHibernate, session.ReasonIdle)
	down.At = up.At.Add(90 * time.Second)
	require.NoError(t, b.TransitionRecord(b.ctx, down))
	require.NoError(t, b.SandboxEnd(b.ctx, b.id, 1, "hibernated"))
	saved := b.next(t, session.EventSaved, session.ReasonIdle)
	require.NoError(t, b.TransitionRecord(b.ctx, saved))
	s, err = b.SessionGet(b.ctx, b.id)
	require.NoError(t, err)
	require.Equal(t, session.Hibernated, s.Status)
	require.Equal(t, session.ReasonIdle, s.StatusReason)
	require.InDelta(t, 90, s.Metrics.ActiveSeconds, 0.001)
	require.Nil(t, s.Sandbox)
	require.WithinDuration(t, up.At, s.LastActivity, time.Second, "going to sleep is not an activity")
	require.Nil(t, b.lastStatus(t).Sandbox)

	b.transit(t, session.EventWake, session.ReasonPrompt)
	back := b.next(t, session.EventReady, "")
	back.Receipt = &receipt.Receipt{Kind: receipt.Partial, Missing: []string{"/a"}}
	require.NoError(t, b.TransitionRecord(b.ctx, back))
	s, err = b.SessionGet(b.ctx, b.id)
	require.NoError(t, err)
	require.Equal(t, back.Receipt, s.Receipt)
	require.Equal(t, &resource.ReceiptJSON{Kind: receipt.Partial, Missing: []string{"/a"}}, b.lastStatus(t).Receipt)
}

func TestTransitionIsRecordedOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.reserve(t, 1)
	up := b.transit(t, session.EventReady, "")
	before := b.position(t)
	require.NoError(t, b.TransitionRecord(b.ctx, up))
	require.Equal(t, before, b.position(t))
	b.transit(t, session.EventHibernate, session.ReasonIdle)
	require.NoError(t, b.TransitionRecord(b.ctx, up), "also when the session has moved on")

	other := up
	other.To, other.Event = session.Error, session.EventFail
	requireCode(t, failure.IllegalState, b.TransitionRecord(b.ctx, other))
}

func TestIllegalTransitionsChangeNothing(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*session.Transition){
		"a number too far":     func(x *session.Transition) { x.No += 1 },
		"a number of the past": func(x *session.Transition) { x.No = 0 },
		"from another status than its own": func(x *session.Transition) {
			x.From, x.Event, x.To = session.Error, session.EventRecover, session.Restoring
		},
		"not in the table":             func(x *session.Transition) { x.Event, x.To = session.EventSaved, session.Hibernated },
		"another end than its event's": func(x *session.Transition) { x.To = session.Error },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			step := b.next(t, session.EventReady, "")
			change(&step)
			requireCode(t, failure.IllegalState, b.TransitionRecord(b.ctx, step))
			require.Zero(t, b.position(t))
			s, err := b.SessionGet(b.ctx, b.id)
			require.NoError(t, err)
			require.Equal(t, session.Initializing, s.Status)
		})
	}
	b := setup(t)
	step := b.next(t, session.EventReady, "")
	step.SessionID = "ses_nobody"
	requireCode(t, failure.NoSession, b.TransitionRecord(b.ctx, step))
}

func TestFinalStatusIsLastEvent(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.running(t)
	inHand, waiting := b.submit(t, "1"), b.submit(t, "2")
	runID := b.begin(t, inHand)
	b.transit(t, session.EventStop, session.ReasonRequested)
	last := b.position(t)

	for _, id := range []string{inHand, waiting} {
		p, err := b.PromptGet(b.ctx, b.id, id)
		require.NoError(t, err)
		require.Equal(t, session.PromptCancelled, p.Status)
		require.Equal(t, session.ReasonSessionTerminated, p.Reason)
	}
	r, err := b.RunGet(b.ctx, runID)
	require.NoError(t, err)
	require.Equal(t, session.OutcomeCancelled, r.Outcome)

	_, _, _, err = b.PromptSubmit(b.ctx, session.Prompt{ID: "late", SessionID: b.id, Content: "x"})
	requireCode(t, failure.Terminated, err)
	again, _, created, err := b.PromptSubmit(b.ctx, session.Prompt{ID: waiting, SessionID: b.id, Content: "2"})
	require.NoError(t, err, "a resend is answered with what became of the first")
	require.False(t, created)
	require.Equal(t, session.PromptCancelled, again.Status)
	verdict, err := b.RunBegin(b.ctx, b.id, waiting, session.NewID(session.RunPrefix), 1)
	require.NoError(t, err)
	require.False(t, verdict.Granted)
	ended, err := b.RunEnd(b.ctx, run.Ending{RunID: runID, Token: "t1", Outcome: session.OutcomeCompleted})
	require.NoError(t, err)
	require.Equal(t, session.OutcomeCancelled, ended.Outcome)
	n, err := b.PromptsCancel(b.ctx, b.id, "again")
	require.NoError(t, err)
	require.Zero(t, n)
	require.ErrorIs(t, b.appendOne(t, eventlog.Append{
		SessionID: b.id, RunID: runID, Generation: 1, Token: "t1", Events: []eventlog.Draft{draft("title", 0, 0, `{"title":"x"}`)},
	}), eventlog.ErrFenced)
	require.ErrorIs(t, b.appendOne(t, eventlog.Append{
		SessionID: b.id, Generation: 1, Events: []eventlog.Draft{draft("error", 0, 0, `{}`)},
	}), eventlog.ErrFenced)
	s, err := b.SessionPatch(b.ctx, b.id, session.Patch{Title: new("renamed")})
	require.NoError(t, err)
	require.Equal(t, "renamed", s.Title)
	requireCode(t, failure.IllegalState, b.GenerationReserve(b.ctx, b.id, 2, "im-1"))
	require.NoError(t, b.SandboxEnd(b.ctx, b.id, 1, "gone"))
	require.Nil(t, s.Sandbox)

	events := b.events(t)
	require.Equal(t, last, events[len(events)-1].Seq)
	require.Equal(t, event.TypeStatus, events[len(events)-1].Type)
	require.Equal(t, session.Terminated, b.lastStatus(t).Status)
}

func TestErrorCauseIsKeptUntilRecovery(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.running(t)
	cause := func() session.ErrorCause {
		loaded, err := b.SessionOpen(b.ctx, b.id, "w1")
		require.NoError(t, err)
		return loaded.ErrorCause
	}
	failed := b.next(t, session.EventFail, "it is refused")
	failed.Cause = session.CauseRefused
	require.NoError(t, b.TransitionRecord(b.ctx, failed))
	require.Equal(t, session.CauseRefused, cause())
	b.transit(t, session.EventRecover, session.ReasonRequested)
	require.Empty(t, cause())
}

// TestPromptsSubmittedDuringStopAreCancelledInChunks checks that the transition to terminated ends
// them, in transactions of at most 200 like PromptsCancel, and that its status is the session's
// last event.
func TestPromptsSubmittedDuringStopAreCancelledInChunks(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.running(t)
	const prompts = 410
	for i := range prompts {
		b.submit(t, fmt.Sprint(i))
	}
	stop := b.next(t, session.EventStop, session.ReasonRequested)
	require.NoError(t, b.TransitionRecord(b.ctx, stop))
	require.NoError(t, b.TransitionRecord(b.ctx, stop), "a repeat changes nothing")
	endings := map[time.Time]int{} // by time, which is the same within a transaction
	for cursor, more := "", true; more; more = cursor != "" {
		page, next, err := b.PromptList(b.ctx, b.id, 100, cursor)
		require.NoError(t, err)
		for _, p := range page {
			require.Equal(t, session.PromptCancelled, p.Status)
			endings[p.EndedAt]++
		}
		cursor = next
	}
	require.Len(t, endings, 3)
	for _, n := range endings {
		require.LessOrEqual(t, n, 200)
	}
	events := b.events(t)
	require.Equal(t, event.TypeStatus, events[len(events)-1].Type)
}

// TestTransitionClaimsPrompt checks that a transition and the claim of a prompt in one transaction
// leave the same as one after the other, and that a repeated transition claims nothing more.
func TestTransitionClaimsPrompt(t *testing.T) {
	t.Parallel()
	b := setup(t)
	woken := func() (ready session.Transition, sandbox session.SandboxRow, claim run.Proposal) {
		b.id = b.session(t)
		b.reserve(t, 1)
		for _, e := range []session.Event{session.EventReady, session.EventHibernate, session.EventSaved, session.EventWake} {
			b.transit(t, e, session.ReasonPrompt)
		}
		require.NoError(t, b.GenerationReserve(b.ctx, b.id, 2, "im-1"))
		claim = run.Proposal{PromptID: b.submit(t, "hello"), ID: session.NewID(session.RunPrefix)}
		sandbox = session.SandboxRow{Generation: 2, SandboxID: "sb-2", Health: session.SandboxReady, Deadline: time.Now().Add(time.Hour)}
		ready = b.next(t, session.EventReady, session.ReasonPrompt)
		ready.Generation = 2
		return ready, sandbox, claim
	}
	type left struct {
		Events  []string
		Queue   session.QueueCounts
		Status  session.State
		Verdict run.Verdict
	}
	found := func(after int64, v run.Verdict) left {
		s, err := b.SessionGet(b.ctx, b.id)
		require.NoError(t, err)
		v.RunID = ""
		return left{Events: b.types(t, after), Queue: s.Queue, Status: s.Status, Verdict: v}
	}

	ready, sandbox, claim := woken()
	before := b.position(t)
	verdict, err := b.TransitionRecordReady(b.ctx, ready, sandbox, "", run.Proposal{})
	require.NoError(t, err)
	require.Zero(t, verdict)
	verdict, err = b.RunBeginAllotted(b.ctx, b.id, claim.PromptID, claim.ID, 2)
	require.NoError(t, err)
	apart := found(before, verdict)
	require.True(t, apart.Verdict.Granted)

	ready, sandbox, claim = woken()
	before = b.position(t)
	verdict, err = b.TransitionRecordReady(b.ctx, ready, sandbox, "", claim)
	require.NoError(t, err)
	require.Equal(t, apart, found(before, verdict))
	again, err := b.RunBeginAllotted(b.ctx, b.id, claim.PromptID, claim.ID, 2)
	require.NoError(t, err)
	require.Equal(t, verdict, again, "the same claim")
	located, ok, err := b.RunOfClaim(b.ctx, b.id, claim.ID)
	require.NoError(t, err)
	require.True(t, ok)
	require.WithinDuration(t, sandbox.Deadline, located.Deadline, time.Millisecond)
	require.WithinDuration(t, time.Now(), located.Since, time.Minute)
	located.Deadline, located.Since = time.Time{}, time.Time{}
	require.Equal(t, run.Located{
		RunID: verdict.RunID, PromptID: claim.PromptID, Dispatch: 1, Generation: 2, SandboxID: "sb-2", OnUnknown: session.Hold,
	}, located)

	lost, err := b.TransitionRecordReady(b.ctx, ready, sandbox, "", claim)
	require.NoError(t, err)
	require.Equal(t, verdict, lost, "as after a lost answer")
	position := b.position(t)
	repeated, err := b.TransitionRecordReady(b.ctx, ready, sandbox, "", run.Proposal{PromptID: b.submit(t, "another"), ID: session.NewID(session.RunPrefix)})
	require.NoError(t, err)
	require.Zero(t, repeated)
	require.NotContains(t, b.types(t, position), event.TypeTurnStart)
	_, ok, err = b.RunOfClaim(b.ctx, b.id, session.NewID(session.RunPrefix))
	require.NoError(t, err)
	require.False(t, ok)
}
