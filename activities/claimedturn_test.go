package activities_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/activities"
	"github.com/overwinter-dev/overwinter/internal/eventlog"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/run"
	"github.com/overwinter-dev/overwinter/internal/runner"
	"github.com/overwinter-dev/overwinter/internal/sandbox/memsandbox"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// woken is a session that a prompt wakes: its transition to restoring is recorded.
type woken struct {
	*harness
	prompt  session.Prompt
	request activities.SandboxRequest
	turn    activities.TurnRequest
}

func (b *harness) wokenBy(t *testing.T, content string) woken {
	t.Helper()
	for _, e := range []session.Event{session.EventHibernate, session.EventSaved, session.EventWake} {
		b.transit(t, e)
	}
	w := woken{harness: b, prompt: b.submit(t, content)}
	s, err := b.db.SessionGet(b.ctx, b.id)
	require.NoError(t, err)
	w.request = activities.SandboxRequest{
		SessionID: b.id, Generation: 2, Claim: &run.Proposal{PromptID: w.prompt.ID, ID: session.NewID(session.RunPrefix)},
		Then: &session.Transition{
			SessionID: b.id, No: s.TransitionNo + 1, From: session.Restoring, To: session.Running, Event: session.EventReady,
			Reason: session.ReasonPrompt, Generation: 1,
		},
	}
	w.turn = activities.TurnRequest{
		Dispatch: 1, SessionID: b.id, ClaimID: w.request.Claim.ID, Look: true, Attend: &activities.Attend{For: time.Minute, MaxPrompts: 10},
	}
	return w
}

// wokenUnused is wokenBy for a session without a turn in its sandboxes.
func (b *harness) wokenUnused(t *testing.T) woken {
	t.Helper()
	b.hibernate(t)
	b.transit(t, session.EventWake)
	b.transit(t, session.EventReady)
	return b.wokenBy(t, "hello")
}

func (w woken) wake(t *testing.T) activities.SandboxReady {
	t.Helper()
	ready, err := do(w.harness, attempt{}, w.control.RestoreSandbox, w.request)
	require.NoError(t, err)
	require.NotZero(t, ready.Recorded)
	return ready
}

// begin runs the turn that waits for its claim concurrently with the test, whose clean-up ends it.
func (w woken) begin(t *testing.T) *pending[activities.TurnResult] {
	t.Helper()
	return w.beginWith(t, w.turns.RunTurnWhenClaimed, w.turn)
}

// TestTurnBeginsWhenRestoreHasClaimedItsPrompt checks that the turn that has begun before the restore
// runs the prompt and attends the session, with and without notifications of changes, and while the
// database does not answer, and that other attempts at both find the same run.
func TestTurnBeginsWhenRestoreHasClaimedItsPrompt(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*activities.Config){
		"":                      nil,
		"without notifications": func(c *activities.Config) { c.Changes, c.Attend = nil, 0 },
		"without the database":  nil,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := asleep(t, nil)
			b.attended(t, change)
			var looks atomic.Int64
			b.steps.set(func(step string, _ *eventlog.Append) error {
				if step == stepLocate && looks.Add(1) == 1 && name == "without the database" {
					return failure.Errorf(failure.Unavailable, "the database is not available")
				}
				return nil
			}, nil)
			w := b.wokenBy(t, "recall")
			turn := w.begin(t)
			ready := w.wake(t)
			require.NotNil(t, ready.Claimed)
			p := b.awaitEnd(t, w.prompt)
			require.Equal(t, session.PromptCompleted, p.Status)
			require.Equal(t, &run.Verdict{
				Granted: true, RunID: p.RunID, Dispatch: 1, Status: session.PromptProcessing, OnUnknown: session.Hold,
			}, ready.Claimed)
			require.Contains(t, b.output(t, p.RunID), "my name is Robin")
			require.Equal(t, 2, b.attaches(), "the turn uses the link of the restore; the first one was that of the turn before")
			if change == nil {
				b.ranOnce(t, b.submit(t, "the second"), "the second")
			}
			again := w.wake(t)
			require.Equal(t, ready.SandboxID, again.SandboxID)
			require.Equal(t, ready.Claimed, again.Claimed)
			close(turn.stop)
			_, err := turn.wait(t)
			require.NoError(t, err)
			result, err := do(b, attempt{}, w.turns.RunTurnWhenClaimed, w.turn)
			require.NoError(t, err)
			require.Equal(t, session.OutcomeCompleted, result.Outcome)
			require.True(t, result.Reread, "other runs may have followed")
			require.Len(t, b.of(t, p.RunID, "turn_end"), 1)
		})
	}
}

// TestRestoreClaimsOnlyNextPrompt checks that a prompt that must not begin now is not changed, and
// that the restore succeeds nevertheless.
func TestRestoreClaimsOnlyNextPrompt(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]func(t *testing.T, w *woken){
		"the queue is held": func(t *testing.T, w *woken) {
			_, err := w.db.SessionHold(w.ctx, w.id, "")
			require.NoError(t, err)
		},
		"a command comes first": func(t *testing.T, w *woken) {
			_, err := w.db.CommandSubmit(w.ctx, session.Command{SessionID: w.id, Kind: session.CommandHibernate})
			require.NoError(t, err)
		},
		"another prompt comes first": func(t *testing.T, w *woken) {
			w.request.Claim.PromptID = w.submit(t, "the second").ID
		},
		"the prompt is withdrawn": func(t *testing.T, w *woken) {
			_, err := w.db.PromptWithdraw(w.ctx, w.id, w.prompt.ID)
			require.NoError(t, err)
		},
		"there is no such prompt": func(_ *testing.T, w *woken) { w.request.Claim.PromptID = session.NewID(session.PromptPrefix) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setupMemory(t)
			b.open(t)
			w := b.wokenUnused(t)
			before(t, &w)
			status := b.prompt(t, w.prompt.ID).Status
			require.Nil(t, w.wake(t).Claimed)
			s, err := b.db.SessionGet(b.ctx, b.id)
			require.NoError(t, err)
			require.Equal(t, session.Running, s.Status)
			require.Equal(t, status, b.prompt(t, w.prompt.ID).Status)
			runs := 0
			b.query(t, &runs, "SELECT count(*) FROM runs WHERE session_id = $1", b.id)
			require.Zero(t, runs)
		})
	}
}

// TestLostClaimIsReported loses the answer to the commit of a claim: the restore looks for the run.
func TestLostClaimIsReported(t *testing.T) {
	t.Parallel()
	b := setupMemory(t)
	b.open(t)
	w := b.wokenUnused(t)
	b.steps.Store = &losingReady{Store: b.steps.Store}
	ready, err := do(b, attempt{}, b.control.RestoreSandbox, w.request)
	require.NoError(t, err)
	require.Zero(t, ready.Recorded, "the workflow records the transition again")
	require.NotNil(t, ready.Claimed)
	require.Equal(t, session.PromptProcessing, b.prompt(t, w.prompt.ID).Status)
	require.NotNil(t, w.wake(t).Claimed)
}

// losingReady loses the answer to the record of a restored sandbox.
type losingReady struct{ activities.Store }

func (l *losingReady) TransitionRecordReady(
	ctx context.Context, t session.Transition, ready session.SandboxRow, proved string, claim run.Proposal,
) (run.Verdict, error) {
	if _, err := l.Store.TransitionRecordReady(ctx, t, ready, proved, claim); err != nil {
		return run.Verdict{}, err
	}
	return run.Verdict{}, &failure.Error{Code: failure.Unavailable, Message: "the database is not available"}
}

// TestLateRestoreLeavesUsedSandbox has an attempt at a restore find that its runner does not answer
// after another attempt has recorded the end of the restore: a turn may run in that sandbox.
func TestLateRestoreLeavesUsedSandbox(t *testing.T) {
	t.Parallel()
	b := setupMemory(t)
	b.open(t)
	w := b.wokenUnused(t)
	var ready activities.SandboxReady
	var verified atomic.Int64
	b.memory.Handle("overwinter-runner", func(ctx context.Context, p *memsandbox.Proc) int {
		if p.Args[1] == "verify" && verified.Add(1) == 1 { // by the late attempt
			ready = w.wake(t)
			return runner.ExitNoRunner
		}
		return idleRunner(ctx, p)
	})
	_, err := do(b, attempt{}, b.control.RestoreSandbox, w.request)
	require.Equal(t, activities.Fenced, activities.TypeOf(err), "%v", err)
	require.NotNil(t, ready.Claimed)
	require.True(t, b.running(t, ready.SandboxID))
}

// TestTurnAwaitsClaim ends a turn while it waits for its run.
func TestTurnAwaitsClaim(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*activities.Config)
		end    func(b *harness, turn *pending[activities.TurnResult]) // once it waits; nil if it does not wait
		is     func(error) bool
	}{
		"the workflow cancels it": {
			end: func(_ *harness, turn *pending[activities.TurnResult]) { turn.cancel() },
			is:  func(err error) bool { return strings.Contains(err.Error(), context.Canceled.Error()) },
		},
		"its worker stops": {
			end: func(_ *harness, turn *pending[activities.TurnResult]) { close(turn.stop) },
			is:  func(err error) bool { return activities.TypeOf(err) == activities.HandOver },
		},
		"another turn needs its place": {
			change: func(c *activities.Config) { c.MaxTurns = 2 },
			end: func(b *harness, _ *pending[activities.TurnResult]) {
				_, err := b.turn(activities.TurnRequest{SessionID: b.id, RunID: session.NewID(session.RunPrefix)})
				require.Error(t, err, "there is no such run, but it takes a place all the same")
			},
			is: func(err error) bool { return activities.TypeOf(err) == activities.GaveWay },
		},
		"the worker has no place for it": {
			change: func(c *activities.Config) { c.MaxTurns = 1 },
			is:     func(err error) bool { return activities.TypeOf(err) == activities.GaveWay },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setupMemory(t)
			looked := make(chan struct{}, 100)
			b.attended(t, c.change)
			b.steps.set(nil, func(step string) {
				if step == stepLocate {
					looked <- struct{}{}
				}
			})
			w := b.wokenUnused(t)
			turn := w.begin(t)
			if c.end != nil {
				select {
				case <-looked:
				case <-time.After(waitLimit):
					require.FailNow(t, "the turn does not look for its run")
				}
				c.end(b, turn)
			}
			_, err := turn.wait(t)
			require.Error(t, err)
			require.True(t, c.is(err), "%v", err)
			require.NotNil(t, w.wake(t).Claimed, "the workflow dispatches the run again")
		})
	}
}

// TestClaimedTurnLeavesBeforeSessionMoves checks that an attendance that began before its sandbox
// ends before the session must leave that sandbox.
func TestClaimedTurnLeavesBeforeSessionMoves(t *testing.T) {
	t.Parallel()
	b := asleep(t, nil)
	b.attended(t, func(c *activities.Config) { c.SandboxTimeout = 10 * time.Second })
	w := b.wokenBy(t, "recall")
	turn := w.begin(t)
	ready := w.wake(t)
	result, err := turn.wait(t)
	require.NoError(t, err)
	require.Equal(t, session.OutcomeCompleted, result.Outcome)
	require.NotNil(t, result.Waiting, "the attendant has left")
	require.True(t, time.Now().Before(ready.Deadline), "before the end of the sandbox")
}

// beginWith runs a turn's activity concurrently with the test, whose clean-up ends it.
func (b *harness) beginWith(
	t *testing.T, activity func(context.Context, activities.TurnRequest) (activities.TurnResult, error), in activities.TurnRequest,
) *pending[activities.TurnResult] {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	p := &pending[activities.TurnResult]{done: make(chan struct{}), cancel: cancel, stop: make(chan struct{})}
	go func() {
		defer close(p.done)
		p.out, p.err = do(b, attempt{ctx: ctx, stop: p.stop}, activity, in)
	}()
	t.Cleanup(func() {
		cancel()
		<-p.done
	})
	return p
}
