package postgres_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/question"
	"github.com/overwinter-dev/overwinter/internal/run"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// steer queues a prompt of the mode steer, and returns its place in the queue.
func (b *harness) steer(t *testing.T, id string) (stored session.Prompt, position int64) {
	t.Helper()
	stored, position, _, err := b.PromptSubmit(b.ctx, session.Prompt{ID: id, SessionID: b.id, Content: id, Mode: session.Steer})
	require.NoError(t, err)
	return stored, position
}

// TestSteerInterruptsTurnAndRunsNext checks that several of them cause one abort, and keep
// their order.
func TestSteerInterruptsTurnAndRunsNext(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.running(t)
	first, second := b.submit(t, "first"), b.submit(t, "second")
	runID := b.begin(t, first)
	b.opened(t) // earlier signals are answered
	at := b.position(t)

	s1, position := b.steer(t, "s1")
	require.True(t, s1.Interrupts)
	require.EqualValues(t, 1, position)
	s2, position := b.steer(t, "s2")
	require.False(t, s2.Interrupts, "the abort is signalled already")
	require.EqualValues(t, 2, position)
	again, position := b.steer(t, "s1")
	require.False(t, again.Interrupts)
	require.EqualValues(t, 1, position)
	require.Equal(t, []string{"prompt", "queue", "command", "prompt", "queue"}, b.types(t, at))
	abort := b.look(t).Commands
	require.Len(t, abort, 1)
	require.Equal(t, []string{runID, session.ReasonSteered}, []string{abort[0].RunID, abort[0].Reason})

	ended, err := b.RunEnd(b.ctx, run.Ending{RunID: runID, Outcome: session.OutcomeCancelled, Reason: session.ReasonAborted, RecheckFor: "w1"})
	require.NoError(t, err)
	require.Equal(t, session.ReasonSteered, ended.Reason)
	require.Equal(t, []string{"s1", "s2", second}, []string{ended.Look.Waiting[0].ID, ended.Look.Waiting[1].ID, ended.Look.Waiting[2].ID})
	interrupted := b.prompt(t, first)
	require.Equal(t, session.PromptCancelled, interrupted.Status)
	require.Equal(t, session.ReasonSteered, interrupted.Reason)
	require.Empty(t, b.look(t).Commands)
	require.Equal(t, "s1", b.claim(t, second).Earlier.ID)
	require.True(t, b.claim(t, "s1").Granted)
}

// TestLateSteerInterruptsNothing checks that a turn that has already ended keeps its outcome.
func TestLateSteerInterruptsNothing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.running(t)
	first := b.submit(t, "first")
	run := b.begin(t, first)
	b.steer(t, "s1")
	b.end(t, run, "", "")
	require.Equal(t, session.PromptCompleted, b.prompt(t, first).Status)
	require.Empty(t, b.look(t).Commands)
	require.True(t, b.claim(t, "s1").Granted)
}

// TestSteerInterruptsNothingWhileQueueIsHeld also covers a session that is stopping, and one
// without a turn.
func TestSteerInterruptsNothingWhileQueueIsHeld(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.running(t)
	idle, _ := b.steer(t, "idle")
	require.True(t, idle.Notify)
	require.False(t, idle.Interrupts)
	run := b.begin(t, "idle")
	second := b.submit(t, "second")
	b.holdQueue(t, "")
	held, position := b.steer(t, "held")
	require.False(t, held.Interrupts)
	require.EqualValues(t, 1, position)
	require.Empty(t, b.look(t).Commands)
	b.end(t, run, "", "")
	require.Equal(t, "held", b.release(t).ID)
	b.begin(t, "held")
	b.command(t, session.CommandStop)
	last, _ := b.steer(t, "last")
	require.False(t, last.Interrupts)
	require.Equal(t, []session.CommandKind{session.CommandStop}, b.pending(t))
	require.Equal(t, session.PromptQueued, b.prompt(t, second).Status)
}

// TestSteeredRunIsNotRepeatedAfterLoss also covers a run that never reached the agent.
func TestSteeredRunIsNotRepeatedAfterLoss(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(t *testing.T, b *harness, run string){
		"lost": func(t *testing.T, b *harness, runID string) {
			t.Helper()
			_, err := b.RunEnd(b.ctx, run.Ending{RunID: runID, Outcome: session.OutcomeUnknown, Requeue: true})
			require.NoError(t, err)
		},
		"returned": func(t *testing.T, b *harness, run string) {
			t.Helper()
			queued, err := b.RunReturn(b.ctx, run, session.ReasonSandboxLost, false)
			require.NoError(t, err)
			require.False(t, queued)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.running(t)
			first := b.submit(t, "first")
			run := b.begin(t, first)
			b.steer(t, "s1")
			end(t, b, run)
			require.Equal(t, session.PromptCancelled, b.prompt(t, first).Status)
			require.Equal(t, session.ReasonSteered, b.prompt(t, first).Reason)
			require.True(t, b.claim(t, "s1").Granted)
		})
	}
}

// TestSteerInterruptsParkedRun checks that the run's question then stays unanswered.
func TestSteerInterruptsParkedRun(t *testing.T) {
	t.Parallel()
	b, runID := asleepAsking(t, time.Hour, permission)
	b.opened(t)
	s1, _ := b.steer(t, "s1")
	require.True(t, s1.Interrupts)
	require.Len(t, b.look(t).Commands, 1)
	ended, err := b.RunEnd(b.ctx, run.Ending{RunID: runID, Outcome: session.OutcomeCancelled, Reason: session.ReasonAborted, RecheckFor: "w1"})
	require.NoError(t, err)
	require.Equal(t, session.ReasonSteered, ended.Reason)
	require.Equal(t, question.Cancelled, b.questions(t)[0].Status)
	require.Equal(t, "s1", ended.Look.Waiting[0].ID)
}

// TestPromptsAreStillCollectedAfterSteer: the steer prompt precedes them in the queue.
func TestPromptsAreStillCollectedAfterSteer(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.running(t)
	first := b.collect(t, "one")
	b.steer(t, "s1")
	require.Equal(t, first.ID, b.collect(t, "two").JoinedTo)
	require.True(t, b.claim(t, "s1").Granted)
}
