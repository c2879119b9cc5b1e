package activities_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/activities"
	"github.com/overwinter-dev/overwinter/internal/eventlog"
	"github.com/overwinter-dev/overwinter/internal/runner"
	"github.com/overwinter-dev/overwinter/internal/sandbox/memsandbox"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// The tests in this file freeze an attempt at an activity. Meanwhile another attempt does the work, and
// the session moves on: the late attempt must not end the sandbox or the turn that the session has then.

// duringOnce calls do once, before or after a step.
func (b *harness) duringOnce(step string, after bool, do func()) {
	var done atomic.Bool
	hook := func(is string) {
		if is == step && done.CompareAndSwap(false, true) {
			do()
		}
	}
	if after {
		b.steps.set(nil, hook)
		return
	}
	b.steps.set(func(is string, _ *eventlog.Append) error { hook(is); return nil }, nil)
}

// wakeNext wakes the hibernated session in its next generation.
func (b *harness) wakeNext(t *testing.T, generation int64) activities.SandboxReady {
	t.Helper()
	b.transit(t, session.EventWake)
	ready, err := b.restore(generation)
	require.NoError(t, err)
	b.transit(t, session.EventReady)
	return ready
}

// saveLast saves and releases the sandbox of a session whose second transition was to hibernating.
func (b *harness) saveLast(ready activities.SandboxReady, bundleID string) (activities.Saved, error) {
	return do(b, attempt{}, b.control.SaveBundle, activities.SaveRequest{
		SessionID: b.id, Generation: ready.Generation, SandboxID: ready.SandboxID, BundleID: bundleID, Release: "hibernated",
		Then: &session.Transition{
			SessionID: b.id, No: 3, From: session.Hibernating, To: session.Hibernated, Event: session.EventSaved,
			Reason: session.ReasonRequested, Generation: ready.Generation,
		},
	})
}

// requireInUse checks that a sandbox runs, and that its end is not recorded.
func (b *harness) requireInUse(t *testing.T, ready activities.SandboxReady) {
	t.Helper()
	require.True(t, b.running(t, ready.SandboxID))
	rows := b.sandboxes(t, b.id)
	require.Len(t, rows, 1)
	require.Equal(t, ready.SandboxID, rows[0].SandboxID)
}

func TestLateSaveLeavesLaterSandbox(t *testing.T) {
	t.Parallel()
	for name, freeze := range map[string]struct {
		step  string
		after bool
	}{
		"after the snapshot":       {stepSnapshot, true},
		"before its sandboxes end": {stepSandboxes, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setupMemory(t)
			ready := b.create(t)
			b.transit(t, session.EventReady)
			b.transit(t, session.EventHibernate)
			var later activities.SandboxReady
			b.duringOnce(freeze.step, freeze.after, func() {
				saved, err := b.saveLast(ready, "bdl_late")
				require.NoError(t, err)
				require.NotZero(t, saved.Recorded)
				later = b.wakeNext(t, 2)
			})
			_, err := b.saveLast(ready, "bdl_late")
			require.NoError(t, err)
			require.False(t, b.running(t, ready.SandboxID))
			b.requireInUse(t, later)
		})
	}
}

// TestLateSaveLeavesSandboxInUseAgain has another attempt fail, after which the session works in the same sandbox again.
func TestLateSaveLeavesSandboxInUseAgain(t *testing.T) {
	t.Parallel()
	b := setupMemory(t)
	ready := b.create(t)
	b.transit(t, session.EventReady)
	b.transit(t, session.EventHibernate)
	save := func() (activities.Saved, error) { return b.saveLast(ready, session.NewID(session.BundlePrefix)) }
	b.duringOnce(stepSnapshot, true, func() {
		b.transit(t, session.EventFail)
		b.transit(t, session.EventRecover)
		b.transit(t, session.EventReady)
	})
	_, err := save()
	require.NoError(t, err)
	b.requireInUse(t, ready)
	_, err = save()
	require.NoError(t, err, "this generation is saved")
	b.requireInUse(t, ready)
	b.sql(t, "UPDATE sessions SET head_bundle_id = NULL")
	_, err = save()
	require.Equal(t, activities.Fenced, activities.TypeOf(err), "%v", err)
	b.requireInUse(t, ready)
}

func TestLateTerminationLeavesLaterSandbox(t *testing.T) {
	t.Parallel()
	b := setupMemory(t)
	ready := b.create(t)
	b.transit(t, session.EventReady)
	b.transit(t, session.EventHibernate)
	_, err := b.save(ready)
	require.NoError(t, err)
	end := func() {
		s, err := b.db.SessionGet(b.ctx, b.id)
		require.NoError(t, err)
		_, err = do(b, attempt{}, plain(b.control.TerminateSandbox), activities.SandboxRef{
			SessionID: b.id, Generation: ready.Generation, SandboxID: ready.SandboxID, Reason: "hibernated", Transition: s.TransitionNo,
		})
		require.NoError(t, err)
	}
	var later activities.SandboxReady
	b.duringOnce(stepSandboxes, false, func() {
		end()
		require.False(t, b.running(t, ready.SandboxID))
		b.transit(t, session.EventSaved)
		later = b.wakeNext(t, 2)
	})
	end()
	b.requireInUse(t, later)
}

// TestLateCreateLeavesUsedSandbox has an attempt at a create find that its runner does not answer after
// another attempt has reported the sandbox.
func TestLateCreateLeavesUsedSandbox(t *testing.T) {
	t.Parallel()
	b := setupMemory(t)
	var ready activities.SandboxReady
	var pinged atomic.Int64
	b.memory.Handle("overwinter-runner", func(ctx context.Context, p *memsandbox.Proc) int {
		if p.Args[1] == "ping" && pinged.Add(1) == 1 { // by the late attempt
			ready = b.create(t)
			b.transit(t, session.EventReady)
			return runner.ExitNoRunner
		}
		return idleRunner(ctx, p)
	})
	_, err := do(b, attempt{}, b.control.CreateSandbox, activities.SandboxRequest{SessionID: b.id, Generation: 1, Next: 1})
	require.Equal(t, activities.Fenced, activities.TypeOf(err), "%v", err)
	b.requireInUse(t, ready)
}

// TestLateSealLeavesLaterTurn freezes an attempt that seals the sandbox of an idle session, after it has found
// that no run is open.
func TestLateSealLeavesLaterTurn(t *testing.T) {
	t.Parallel()
	for name, sealing := range map[string]func(b *harness, ready activities.SandboxReady, promptID string) error{
		"checkpoint": func(b *harness, ready activities.SandboxReady, _ string) error {
			request := b.saveRequest(ready)
			request.Checkpoint = true
			_, err := do(b, attempt{}, b.control.SaveBundle, request)
			return err
		},
		"revert": func(b *harness, ready activities.SandboxReady, promptID string) error {
			return b.revert(ready, promptID)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			ready := b.create(t)
			first := b.claim(t, ready, "the first thing")
			_, err := b.turn(first)
			require.NoError(t, err)
			var in activities.TurnRequest
			var turn *pending[activities.TurnResult]
			b.duringOnce(stepIdle, true, func() {
				require.NoError(t, sealing(b, ready, first.PromptID))
				in = b.claim(t, ready, "slow 50ms: one two three four five six seven eight nine ten")
				turn = b.begin(t, in)
				b.await(t, in.RunID, "block_start")
			})
			require.ErrorContains(t, sealing(b, ready, first.PromptID), "seal ended without a manifest")
			result, err := turn.wait(t)
			require.NoError(t, err)
			require.Equal(t, session.OutcomeCompleted, result.Outcome)
			require.Contains(t, b.output(t, in.RunID), "ten")
		})
	}
}

// TestLateRevertLeavesLaterTurn freezes a revert before its last commit.
func TestLateRevertLeavesLaterTurn(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ready := b.create(t)
	first := b.claim(t, ready, "the first thing")
	_, err := b.turn(first)
	require.NoError(t, err)
	b.duringOnce(stepRevert, false, func() {
		other, _ := activities.New(b.config) // another worker: each reverts one session at a time
		_, err := do(b, attempt{}, plain(other.RevertSession), activities.RevertRequest{
			SessionID: b.id, Generation: ready.Generation, SandboxID: ready.SandboxID, PromptID: first.PromptID,
		})
		require.NoError(t, err)
		require.NotEmpty(t, b.say(t, ready, "the second thing"))
	})
	require.ErrorContains(t, b.revert(ready, first.PromptID), "another run has begun")
	conversation, _, err := b.db.ConversationPage(b.ctx, b.id, 0, "")
	require.NoError(t, err)
	require.Len(t, conversation.Threads[0].Blocks, 2, "the second prompt and its answer")
	require.Contains(t, b.say(t, ready, "recall"), "2 prompts")
}

// TestCheckpointDuringParkedRun checks that a checkpoint is made although the run that waits for an answer is open.
func TestCheckpointDuringParkedRun(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ready := b.create(t)
	in := b.claim(t, ready, "ask: Which colour? | Red | Blue")
	in.ParkAfter = time.Millisecond
	result, err := b.turn(in)
	require.NoError(t, err)
	require.NotNil(t, result.Parked)
	request := b.saveRequest(ready)
	request.Checkpoint = true
	saved, err := do(b, attempt{}, b.control.SaveBundle, request)
	require.NoError(t, err)
	require.True(t, saved.Verified)
}

// TestCheckpointIsReportedThoughItsSandboxHasEnded repeats a checkpoint whose answer was lost.
func TestCheckpointIsReportedThoughItsSandboxHasEnded(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ready := b.create(t)
	b.say(t, ready, "something to keep")
	request := b.saveRequest(ready)
	request.Checkpoint = true
	saved, err := do(b, attempt{}, b.control.SaveBundle, request)
	require.NoError(t, err)
	b.terminate(t, ready)
	again, err := do(b, attempt{}, b.control.SaveBundle, request)
	require.NoError(t, err)
	require.Equal(t, saved, again)
}
