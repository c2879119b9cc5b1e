package postgres_test

import (
	"encoding/json"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/event"
	"github.com/overwinter-dev/overwinter/internal/eventlog"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/receipt"
	"github.com/overwinter-dev/overwinter/internal/run"
	"github.com/overwinter-dev/overwinter/internal/session"
	"github.com/overwinter-dev/overwinter/internal/usage"
)

func TestPromptIsClaimedByOneRun(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.running(t)
	p := b.submit(t, "1")
	var all sync.WaitGroup
	granted := make(chan string, 8)
	held := make(chan run.Verdict, 8)
	for range 8 {
		all.Go(func() {
			id := session.NewID(session.RunPrefix)
			v, err := b.RunBegin(b.ctx, b.id, p, id, 1)
			if err == nil && v.Granted {
				granted <- id
			} else if err == nil {
				held <- v
			}
		})
	}
	all.Wait()
	close(granted)
	close(held)
	require.Len(t, granted, 1)
	winner := <-granted
	require.Len(t, held, 7)
	for v := range held {
		require.Equal(t, run.Verdict{Status: session.PromptProcessing, HeldBy: winner, Generation: 1, OnUnknown: session.Hold}, v)
	}
	before := b.position(t)
	v, err := b.RunBegin(b.ctx, b.id, p, winner, 1)
	require.NoError(t, err)
	require.True(t, v.Granted)
	require.Equal(t, before, b.position(t), "granted again, reported once")

	other := b.submit(t, "2")
	v, err = b.RunBegin(b.ctx, b.id, other, session.NewID(session.RunPrefix), 1)
	require.NoError(t, err)
	require.Equal(t, run.Verdict{Status: session.PromptQueued, HeldBy: winner, Generation: 1, OnUnknown: session.Hold}, v, "one turn at a time")

	_, err = b.RunEnd(b.ctx, run.Ending{RunID: winner, Outcome: session.OutcomeFailed})
	require.NoError(t, err)
	v, err = b.RunBegin(b.ctx, b.id, p, winner, 1)
	require.NoError(t, err)
	require.False(t, v.Granted)
	require.Equal(t, session.PromptFailed, v.Status)
	_, err = b.RunBegin(b.ctx, b.id, "nothing", winner, 1)
	requireCode(t, failure.NoPrompt, err)
	_, err = b.RunBegin(b.ctx, "ses_nobody", p, winner, 1)
	requireCode(t, failure.NoSession, err)
}

func TestOldGenerationIsFenced(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.running(t)
	p := b.submit(t, "1")
	runID := b.begin(t, p)
	b.reserve(t, 2)
	_, err := b.RunBegin(b.ctx, b.id, b.submit(t, "2"), session.NewID(session.RunPrefix), 1)
	requireCode(t, failure.IllegalState, err)
	_, err = b.RunAttach(b.ctx, runID, "t2", run.Dispatch{No: 1, Attempt: 2}, nil)
	requireCode(t, failure.IllegalState, err)
	start, err := b.RunFence(b.ctx, runID, "fence")
	require.NoError(t, err)
	require.EqualValues(t, 2, start.Generation)
	require.EqualValues(t, 1, start.Run.Generation)
	require.EqualValues(t, 1, start.Run.Attempt)
	a := eventlog.Append{SessionID: b.id, RunID: runID, Generation: 2, Token: "fence", LastFrame: 0, Events: []eventlog.Draft{draft("error", 0, 0, `{}`)}}
	require.NoError(t, b.appendOne(t, a), "who fenced it may close it")
	a.Token = "t1"
	a.LastFrame = 1
	require.ErrorIs(t, b.appendOne(t, a), eventlog.ErrFenced)
}

func TestOlderAttemptIsFenced(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.running(t)
	runID := b.begin(t, b.submit(t, "hello")) // attaches as attempt 1 of dispatch 1
	attach := func(token string, no, attempt int64) error {
		_, err := b.RunAttach(b.ctx, runID, token, run.Dispatch{No: no, Attempt: attempt}, nil)
		return err
	}
	require.NoError(t, attach("second", 1, 2))
	position := b.position(t)
	requireCode(t, failure.IllegalState, attach("first, paused", 1, 1))
	requireCode(t, failure.IllegalState, attach("equal", 1, 2))
	require.NoError(t, attach("second", 1, 2), "the same attempt again")
	require.Equal(t, position, b.position(t), "they were not reported")

	loaded, err := b.SessionOpen(b.ctx, b.id, "w1")
	require.NoError(t, err)
	require.EqualValues(t, 2, loaded.Processing.Dispatch)
	require.NoError(t, attach("dispatched again", 2, 1))
	requireCode(t, failure.IllegalState, attach("of the dispatch before", 1, 9))
	start, err := b.RunFence(b.ctx, runID, "fence")
	require.NoError(t, err)
	require.Equal(t, run.Dispatch{No: 2, Attempt: 1}, start.Run.Held)
	requireCode(t, failure.IllegalState, attach("of the dispatch before", 1, 10))
	_, err = b.RunEnd(b.ctx, run.Ending{RunID: runID, Outcome: session.OutcomeCancelled})
	require.NoError(t, err)
	requireCode(t, failure.IllegalState, attach("newest", 3, 1))
}

func TestNewAttemptTakesOverRun(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.running(t)
	runID := b.begin(t, b.submit(t, "hello"))
	before := b.position(t)
	start, err := b.RunAttach(b.ctx, runID, "t1", run.Dispatch{No: 1, Attempt: 1}, nil)
	require.NoError(t, err)
	require.EqualValues(t, 1, start.Run.Attempt, "the same attempt again")
	require.Equal(t, before, b.position(t))
	require.False(t, start.Resume)
	require.Equal(t, "sb-1", start.SandboxID)
	require.Equal(t, "demo", start.Agent)
	require.Equal(t, "hello", start.Prompt.Content)
	require.EqualValues(t, -1, start.Run.LastFrame)

	start, err = b.RunAttach(b.ctx, runID, "t2", run.Dispatch{No: 1, Attempt: 2}, nil)
	require.NoError(t, err)
	require.EqualValues(t, 2, start.Run.Attempt)
	events := b.events(t)
	require.JSONEq(t, `{"runId":"`+runID+`","promptId":"`+start.Prompt.ID+`","attempt":2}`, string(events[len(events)-1].Data))

	_, err = b.RunEnd(b.ctx, run.Ending{RunID: runID, Token: "t1", Outcome: session.OutcomeCompleted})
	requireCode(t, failure.IllegalState, err)
	r, err := b.RunGet(b.ctx, runID)
	require.NoError(t, err)
	require.Empty(t, r.Outcome)
	open, err := b.RunOpen(b.ctx, b.id)
	require.NoError(t, err)
	require.Equal(t, runID, open)

	_, err = b.RunEnd(b.ctx, run.Ending{RunID: runID, Token: "t2", Outcome: session.OutcomeCompleted})
	require.NoError(t, err)
	_, err = b.RunAttach(b.ctx, runID, "t3", run.Dispatch{No: 1, Attempt: 3}, nil)
	requireCode(t, failure.IllegalState, err)
	open, err = b.RunOpen(b.ctx, b.id)
	require.NoError(t, err)
	require.Empty(t, open)
	next := session.NewID(session.RunPrefix)
	_, err = b.RunBegin(b.ctx, b.id, b.submit(t, "again"), next, 1)
	require.NoError(t, err)
	start, err = b.RunAttach(b.ctx, next, "t1", run.Dispatch{No: 1, Attempt: 1}, nil)
	require.NoError(t, err)
	require.True(t, start.Resume)

	_, err = b.RunAttach(b.ctx, next, "", run.Dispatch{No: 1, Attempt: 2}, nil)
	requireCode(t, failure.Invalid, err)
	_, err = b.RunAttach(b.ctx, "run_nobody", "t", run.Dispatch{No: 1, Attempt: 2}, nil)
	requireCode(t, failure.NoRun, err)
	_, err = b.RunGet(b.ctx, "run_nobody")
	requireCode(t, failure.NoRun, err)
}

func TestRunKeepsItsFirstOutcome(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.running(t)
	runID := b.begin(t, b.submit(t, "1"))
	_, err := b.RunEnd(b.ctx, run.Ending{RunID: runID, Outcome: session.OutcomeUnknown, Reason: session.ReasonSandboxLost})
	require.NoError(t, err)
	before := b.position(t)
	for _, token := range []string{"", "t1", "other"} {
		r, err := b.RunEnd(b.ctx, run.Ending{RunID: runID, Token: token, Outcome: session.OutcomeCompleted, Usage: usage.Usage{ToolCalls: 3}})
		require.NoError(t, err)
		require.Equal(t, session.OutcomeUnknown, r.Outcome)
		require.Equal(t, session.ReasonSandboxLost, r.Reason)
	}
	require.Equal(t, before, b.position(t))
	s, err := b.SessionGet(b.ctx, b.id)
	require.NoError(t, err)
	s.Metrics.ActiveSeconds = 0 // grows while the session runs
	require.Equal(t, session.Metrics{Messages: 1, CostUSD: new(0.0)}, s.Metrics)
	events := b.events(t)
	var end event.TurnEndData
	require.Equal(t, event.TypeTurnEnd, events[len(events)-3].Type)
	require.NoError(t, json.Unmarshal(events[len(events)-3].Data, &end))
	require.Equal(t, session.OutcomeUnknown, end.Outcome)
	require.ErrorIs(t, b.appendOne(t, eventlog.Append{SessionID: b.id, RunID: runID, Generation: 1, Token: "t1"}), eventlog.ErrFenced)
	require.ErrorIs(t, b.appendOne(t, eventlog.Append{SessionID: b.id, RunID: runID, Generation: 1}), eventlog.ErrFenced)
}

func TestUndeliveredRunReturnsPrompt(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.running(t)
	p := b.submit(t, "1")
	b.submit(t, "2")
	run := b.begin(t, p)
	before := b.position(t)
	queued, err := b.RunReturn(b.ctx, run, "never handed over", true)
	require.NoError(t, err)
	require.False(t, queued, "an attempt has attached")
	for range 2 {
		queued, err = b.RunReturn(b.ctx, run, "the sandbox had ended", false)
		require.NoError(t, err)
		require.True(t, queued)
	}
	require.Equal(t, []string{"turn_end", "prompt", "queue"}, b.types(t, before))
	got, err := b.PromptGet(b.ctx, b.id, p)
	require.NoError(t, err)
	require.Equal(t, session.PromptQueued, got.Status)
	loaded, err := b.SessionOpen(b.ctx, b.id, "w1")
	require.NoError(t, err)
	require.Equal(t, p, loaded.Waiting[0].ID)
	require.Nil(t, loaded.Processing)
	s, err := b.SessionGet(b.ctx, b.id)
	require.NoError(t, err)
	require.Zero(t, s.Metrics.Messages)

	run = b.begin(t, p)
	require.NoError(t, b.appendOne(t, eventlog.Append{SessionID: b.id, RunID: run, Generation: 1, Token: "t1", LastFrame: 0}))
	_, err = b.RunReturn(b.ctx, run, "too late", false)
	requireCode(t, failure.IllegalState, err)
}

func TestRunWithoutAttachReturnsItsPrompt(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.running(t)
	p, runID := b.submit(t, "1"), session.NewID(session.RunPrefix)
	verdict, err := b.RunBegin(b.ctx, b.id, p, runID, 1)
	require.NoError(t, err)
	require.True(t, verdict.Granted)
	for range 2 {
		queued, err := b.RunReturn(b.ctx, runID, "the sandbox had ended", true)
		require.NoError(t, err)
		require.True(t, queued, "the same answer again")
	}
	_, err = b.RunAttach(b.ctx, runID, "late", run.Dispatch{No: 1, Attempt: 1}, nil)
	requireCode(t, failure.IllegalState, err)
}

// The end of a lost run and the requeue of its prompt are one transaction, so that the loss of the
// workflow in between cannot leave the prompt unknown.
func TestLostRunEndsAndItsPromptIsQueuedAgain(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.running(t)
	p := b.submit(t, "1")
	runID := b.begin(t, p)
	before := b.position(t)
	lost := run.Ending{RunID: runID, Outcome: session.OutcomeUnknown, Reason: session.ReasonSandboxLost, Requeue: true}
	for range 2 {
		ended, err := b.RunEnd(b.ctx, lost)
		require.NoError(t, err)
		require.Equal(t, session.OutcomeUnknown, ended.Outcome)
		queued, err := b.RunReturn(b.ctx, runID, "", true)
		require.NoError(t, err)
		require.True(t, queued)
	}
	require.Equal(t, []string{"turn_end", "prompt", "queue"}, b.types(t, before))
	got, err := b.PromptGet(b.ctx, b.id, p)
	require.NoError(t, err)
	require.Equal(t, session.PromptQueued, got.Status)
	require.Empty(t, got.RunID)
	again := b.begin(t, p)
	_, err = b.RunEnd(b.ctx, lost)
	require.NoError(t, err, "late")
	loaded, err := b.SessionOpen(b.ctx, b.id, "w1")
	require.NoError(t, err)
	require.Equal(t, again, loaded.Processing.RunID)
}

func TestAbortedLostRunIsNotRequeued(t *testing.T) {
	t.Parallel()
	for _, requeue := range []bool{true, false} {
		b := setup(t)
		b.running(t)
		p := b.submit(t, "1")
		runID := b.begin(t, p)
		before := b.position(t)
		b.command(t, session.CommandAbort)
		ended, err := b.RunEnd(b.ctx, run.Ending{RunID: runID, Outcome: session.OutcomeUnknown, Reason: session.ReasonSandboxLost, Requeue: requeue})
		require.NoError(t, err)
		require.Equal(t, session.OutcomeCancelled, ended.Outcome)
		got, err := b.PromptGet(b.ctx, b.id, p)
		require.NoError(t, err)
		require.Equal(t, session.PromptCancelled, got.Status)
		require.Equal(t, session.ReasonAborted, got.Reason)
		require.Equal(t, []string{"abort pending ", "abort applied "}, b.commandEvents(t, before))
	}
}

// TestReceiptIsDeliveredOnce checks that the receipt of an incomplete restore is delivered with the
// first run that reaches the agent in the restored sandbox.
func TestReceiptIsDeliveredOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.running(t)
	restored := func(kind receipt.Kind) {
		t.Helper()
		generation := b.generation(t) + 1
		b.transit(t, session.EventHibernate, session.ReasonLost)
		b.transit(t, session.EventSaved, session.ReasonLost)
		b.transit(t, session.EventWake, session.ReasonRequested)
		b.reserve(t, generation)
		ready := b.next(t, session.EventReady, session.ReasonRequested)
		ready.Generation, ready.Receipt = generation, &receipt.Receipt{Kind: kind, Missing: []string{"workspace"}}
		require.NoError(t, b.TransitionRecord(b.ctx, ready))
	}
	attached := func(outcome session.Outcome) *receipt.Receipt {
		t.Helper()
		runID := b.begin(t, b.submit(t, "p"))
		start, err := b.RunAttach(b.ctx, runID, "t2", run.Dispatch{No: 1, Attempt: 2}, nil)
		require.NoError(t, err)
		_, err = b.RunEnd(b.ctx, run.Ending{RunID: runID, Outcome: outcome})
		require.NoError(t, err)
		return start.Receipt
	}
	require.Nil(t, attached(session.OutcomeCompleted), "it was never restored")
	restored(receipt.Partial)
	got := attached(session.OutcomeCancelled)
	require.NotNil(t, got)
	require.Equal(t, []string{"workspace"}, got.Missing)
	require.NotNil(t, attached(session.OutcomeCompleted), "the run before did not reach the agent")
	require.Nil(t, attached(session.OutcomeCompleted), "it knows")
	restored(receipt.Full)
	require.Nil(t, attached(session.OutcomeCompleted))
	restored(receipt.Unverified)
	require.Nil(t, attached(session.OutcomeCompleted))
	restored(receipt.Fresh)
	require.NotNil(t, attached(session.OutcomeCompleted))
}
