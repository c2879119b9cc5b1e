package activities_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/activities"
	"github.com/overwinter-dev/overwinter/internal/eventlog"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/postgres/postgrestest"
	"github.com/overwinter-dev/overwinter/internal/sandbox/driver"
	"github.com/overwinter-dev/overwinter/internal/session"
)

var errInjected = errors.New("injected")

func TestTurnIsIdempotent(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ready := b.create(t)
	in := b.claim(t, ready, "hello there, agent")
	first, err := b.turn(in)
	require.NoError(t, err)
	require.Equal(t, session.OutcomeCompleted, first.Outcome)
	require.Equal(t, "hello there, agent", b.output(t, in.RunID))
	position := len(b.events(t))

	second, err := b.turn(in)
	require.NoError(t, err)
	require.Equal(t, first, second)
	require.Len(t, b.of(t, in.RunID, "turn_end"), 1)
	require.Len(t, b.events(t), position, "the second changed nothing")
	require.Equal(t, session.PromptCompleted, b.prompt(t, in.PromptID).Status)
	files, err := postgrestest.Transcripts(b.ctx, b.db, b.id)
	require.NoError(t, err)
	require.Len(t, files, 1)
	require.Contains(t, string(files[0].Data), "hello there, agent", "the transcript was flushed before the turn ended")
}

// hasEnd reports whether an append contains the end of its turn.
func hasEnd(a *eventlog.Append) bool {
	return a != nil && strings.Contains(string(a.State), `"end":`)
}

func TestUncommittedEndIsRepeated(t *testing.T) {
	t.Parallel()
	b := setup(t)
	in := b.claim(t, b.create(t), "every word of this")
	b.steps.set(func(_ string, a *eventlog.Append) error {
		if hasEnd(a) {
			return errInjected
		}
		return nil
	}, nil)
	_, err := b.turn(in)
	require.ErrorContains(t, err, errInjected.Error())
	require.Empty(t, b.run(t, in.RunID).Outcome, "the run is not over before its final output is in the log")

	b.steps.set(nil, nil)
	result, err := b.turn(in)
	require.NoError(t, err)
	require.Equal(t, session.OutcomeCompleted, result.Outcome)
	require.Equal(t, "every word of this", b.output(t, in.RunID))
	require.Len(t, b.of(t, in.RunID, "turn_end"), 1)
}

func TestNextAttemptFillsTranscriptGap(t *testing.T) {
	t.Parallel()
	b := setup(t)
	in := b.claim(t, b.create(t), "slow 60ms: to be remembered: "+strings.Repeat("word ", 40))
	b.steps.set(func(step string, _ *eventlog.Append) error {
		if step == stepTranscript {
			return failure.Errorf(failure.IllegalState, "the segment starts after the end")
		}
		return nil
	}, nil)
	_, err := b.turn(in)
	// The workflow must not get the error of a run that another attempt has: no attempt has this
	// run.
	requirePassing(t, err)
	require.Empty(t, b.run(t, in.RunID).Outcome)
	b.steps.set(nil, nil)
	_, err = b.turn(in)
	require.NoError(t, err)
	require.Equal(t, session.OutcomeCompleted, b.run(t, in.RunID).Outcome)
}

func TestAttemptHeartbeatsWhileItAttaches(t *testing.T) {
	t.Parallel()
	b := setup(t)
	in := b.claim(t, b.create(t), "slow to begin")
	beaten := make(chan struct{})
	var once sync.Once
	reported := false
	b.driver.set(func(f *faulty) {
		f.exec = func(driver.ExecRequest) error {
			select {
			case <-beaten:
				reported = true
			case <-time.After(waitLimit): // the first heartbeat follows the start after an interval
			}
			return nil
		}
	})
	// The server receives the first heartbeat at once and others later.
	_, err := do(b, attempt{beat: func() { once.Do(func() { close(beaten) }) }}, b.turns.RunTurn, in)
	require.NoError(t, err)
	require.True(t, reported, "a slow provider must not look like a lost worker")
}

func TestStoppedWorkerHandsOverAndAgentContinues(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ready := b.create(t)
	in := b.claim(t, ready, "$ sleep 0.5; echo done > finished\nslow 1ms: and that was that")
	first := b.begin(t, in)
	b.await(t, in.RunID, "block_start")
	close(first.stop)
	_, err := first.wait(t)
	requireType(t, activities.HandOver, err)
	requirePassing(t, err)
	require.Empty(t, b.run(t, in.RunID).Outcome)
	require.Eventually(t, func() bool {
		return b.shell(t, ready.SandboxID, "cat /workspace/finished 2>/dev/null || true") == "done\n"
	}, waitLimit, 50*time.Millisecond, "the agent works on without a worker")

	result, err := b.turn(in)
	require.NoError(t, err)
	require.Equal(t, session.OutcomeCompleted, result.Outcome)
	require.Equal(t, "and that was that", b.output(t, in.RunID))
	require.Len(t, b.of(t, in.RunID, "turn_end"), 1)
	require.EqualValues(t, 2, b.run(t, in.RunID).Attempt)
}

// TestAttemptPausedBeforeAttachIsFenced freezes a worker between the start of an attempt and its
// first statement. Temporal starts another attempt, which is executing the run when the first
// continues.
func TestAttemptPausedBeforeAttachIsFenced(t *testing.T) {
	t.Parallel()
	b := setup(t)
	in := b.claim(t, b.create(t), "slow 20ms: one two three four five six seven eight nine ten eleven twelve")
	var frozen atomic.Bool
	reached, thaw := make(chan struct{}), make(chan struct{})
	b.steps.set(func(step string, _ *eventlog.Append) error {
		if step == stepAttach && frozen.CompareAndSwap(false, true) {
			close(reached)
			<-thaw
		}
		return nil
	}, nil)
	paused := b.begin(t, in)
	<-reached
	newer := b.begin(t, in)
	b.await(t, in.RunID, "text_delta")
	close(thaw)
	_, err := paused.wait(t)
	require.Error(t, err)
	result, err := newer.wait(t)
	require.NoError(t, err, "the attempt that works is not disturbed")
	require.Equal(t, session.OutcomeCompleted, result.Outcome)
	require.EqualValues(t, 1, b.run(t, in.RunID).Attempt)
	require.Len(t, b.of(t, in.RunID, "turn_start"), 1)
}

// TestAttemptSurvivesHangingStore locks the session's row in another transaction that does not end.
func TestAttemptSurvivesHangingStore(t *testing.T) {
	t.Parallel()
	b := setup(t)
	in := b.claim(t, b.create(t), "hello")
	conn, err := pgx.Connect(b.ctx, b.url)
	require.NoError(t, err)
	defer conn.Close(context.Background())
	tx, err := conn.Begin(b.ctx)
	require.NoError(t, err)
	_, err = tx.Exec(b.ctx, `SELECT FROM sessions WHERE id = $1 FOR UPDATE`, b.id)
	require.NoError(t, err)
	_, err = b.turn(in)
	requirePassing(t, err)
	require.NoError(t, tx.Rollback(b.ctx))
	result, err := b.turn(in)
	require.NoError(t, err)
	require.Equal(t, session.OutcomeCompleted, result.Outcome)
}

func TestAttemptCancelledDuringDialHasNotDeliveredPrompt(t *testing.T) {
	t.Parallel()
	b := setup(t)
	in := b.claim(t, b.create(t), "hello")
	ctx, cancel := context.WithCancel(b.ctx)
	b.driver.set(func(f *faulty) {
		f.exec = func(driver.ExecRequest) error {
			cancel()
			return driver.Errorf(driver.Unavailable, "exec", "", "injected")
		}
	})
	_, err := do(b, attempt{ctx: ctx}, b.turns.RunTurn, in)
	requireType(t, activities.NotHandedOver, err)
	b.driver.repair()
	result, err := b.turn(in)
	require.NoError(t, err, "without a request for it, the next attempt continues")
	require.Equal(t, session.OutcomeCompleted, result.Outcome)
}

// TestKnownEndIsStoredDespiteCancellation cancels the activity when the turn has ended, and its last
// frames are to be stored with its outcome. Without them, the prompt of a lost sandbox would be unknown.
func TestKnownEndIsStoredDespiteCancellation(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.create(t)
	var cancel context.CancelFunc
	cancelled := 0
	b.steps.set(func(at string, last *eventlog.Append) error {
		if at == stepEnd && last != nil {
			cancelled++
			cancel()
		}
		return nil
	}, nil)
	for turns := 0; turns < 20 || cancelled == 0; turns++ { // in some, a reader waits for the last frames, which are then stored before the end
		require.Less(t, turns, 200)
		in := b.claim(t, s, "slow 5ms: one two")
		result, err := do(b, attempt{}, func(ctx context.Context, in activities.TurnRequest) (activities.TurnResult, error) {
			ctx, cancel = context.WithCancel(ctx)
			defer cancel()
			return b.turns.RunTurn(ctx, in)
		}, in)
		require.NoError(t, err)
		require.Equal(t, session.OutcomeCompleted, result.Outcome)
		require.Equal(t, "one two", b.output(t, in.RunID))
	}
}

// TestRefusedLastFramesAreAppendedByNextAttempt refuses the end of a run with its last frames once. The
// next attempt appends them, and finds out what it is that the store refuses.
func TestRefusedLastFramesAreAppendedByNextAttempt(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.create(t)
	refused := 0
	b.steps.set(func(at string, last *eventlog.Append) error {
		if at == stepEnd && last != nil {
			refused++
			return failure.Errorf(failure.Invalid, "refused")
		}
		return nil
	}, nil)
	for turns := 0; turns < 20 || refused == 0; turns++ {
		require.Less(t, turns, 200)
		before := refused
		in := b.claim(t, s, "slow 5ms: one two")
		result, err := b.turn(in)
		if refused > before {
			requirePassing(t, err)
			result, err = b.turn(in)
		}
		require.NoError(t, err)
		require.Equal(t, session.OutcomeCompleted, result.Outcome)
		require.Equal(t, "one two", b.output(t, in.RunID))
	}
}

func TestSecondWorkerDisplacesFirst(t *testing.T) {
	t.Parallel()
	b := setup(t)
	in := b.claim(t, b.create(t), "slow 20ms: one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen")
	older := b.begin(t, in)
	b.await(t, in.RunID, "text_delta")
	newer := b.begin(t, in)
	_, err := older.wait(t)
	requireType(t, activities.Fenced, err)
	require.Empty(t, b.run(t, in.RunID).Outcome, "the older gave up before the end")
	result, err := newer.wait(t)
	require.NoError(t, err)
	require.Equal(t, session.OutcomeCompleted, result.Outcome)
	require.Equal(t, "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen", b.output(t, in.RunID))
	require.Len(t, b.of(t, in.RunID, "turn_end"), 1)
}

// TestLateWorkerWritesNothing stops a worker between its steps, like a paused machine,
// until another one has ended the turn.
func TestLateWorkerWritesNothing(t *testing.T) {
	t.Parallel()
	for _, step := range []string{stepAppend, stepEnd} {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			in := b.claim(t, b.create(t), "said once")
			asleep, awake := make(chan struct{}), make(chan struct{})
			var stopped atomic.Bool
			b.steps.set(func(at string, _ *eventlog.Append) error {
				if at == step && !stopped.Swap(true) {
					close(asleep)
					<-awake
				}
				return nil
			}, nil)
			older := b.begin(t, in)
			<-asleep
			newer, err := b.turn(in)
			close(awake)
			require.NoError(t, err)
			// The run has ended, so the older attempt reports that end as its own.
			late, err := older.wait(t)
			require.NoError(t, err)
			require.Equal(t, newer, late)
			require.Equal(t, "said once", b.output(t, in.RunID))
			require.Len(t, b.of(t, in.RunID, "turn_end"), 1)
		})
	}
}

func TestSandboxDeathDuringTurnIsLoss(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ready := b.create(t)
	in := b.claim(t, ready, "sleep 10m")
	turn := b.begin(t, in)
	b.await(t, in.RunID, "block_start")
	require.NoError(t, b.provider.Open(ready.SandboxID).Terminate(b.ctx))
	_, err := b.untilFinal(t, in, turn)
	requireType(t, activities.SandboxLost, err)
	require.Empty(t, b.run(t, in.RunID).Outcome, "the workflow settles it")

	settle := activities.SettleRequest{RunID: in.RunID, Outcome: session.OutcomeUnknown, Reason: session.ReasonSandboxLost}
	for range 2 {
		_, err = do(b, attempt{}, b.control.SettleRun, settle)
		require.NoError(t, err)
	}
	require.Equal(t, session.PromptUnknown, b.prompt(t, in.PromptID).Status)
	require.Len(t, b.of(t, in.RunID, "turn_end"), 1)
	require.Len(t, b.of(t, in.RunID, "block_complete"), len(b.of(t, in.RunID, "block_start")), "every block is closed")
}

func TestPromptIsNotDeliveredToSandboxThatDiedBeforeDelivery(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ready := b.create(t)
	require.NoError(t, b.provider.Open(ready.SandboxID).Terminate(b.ctx))
	in := b.claim(t, ready, "never heard")
	_, err := b.turn(in)
	requireType(t, activities.PromptNotDelivered, err)
	// From the second attempt on the outcome is unknown.
	_, err = b.turn(in)
	requireType(t, activities.SandboxLost, err)
	for range 2 {
		_, err = do(b, attempt{}, plain(b.control.ReturnRun), activities.SettleRequest{RunID: in.RunID, Reason: session.ReasonSandboxLost})
		require.NoError(t, err)
	}
	require.Equal(t, session.PromptQueued, b.prompt(t, in.PromptID).Status)
}

// killRunner kills the runner from inside; its name is split so that the shell does not match
// itself.
const killRunner = `for p in /proc/[0-9]*; do
	case "$(tr '\0' ' ' <$p/cmdline 2>/dev/null)" in *"runner ser""ve"*) kill -9 ${p#/proc/};; esac
done; true`

func TestKilledRunnerEndsSandbox(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ready := b.create(t)
	in := b.claim(t, ready, "sleep 10m")
	turn := b.begin(t, in)
	b.await(t, in.RunID, "block_start")
	process, err := b.provider.Open(ready.SandboxID).Exec(b.ctx, execOf("sh", "-c", killRunner))
	require.NoError(t, err)
	defer process.Close() // its sandbox has ended
	_, err = b.untilFinal(t, in, turn)
	require.Contains(t, []string{activities.SandboxLost, activities.DeliveryUnknown}, activities.TypeOf(err), "error: %v", err)
	require.Eventually(t, func() bool { return !b.running(t, ready.SandboxID) }, waitLimit, 20*time.Millisecond)
}

func TestTurnCatchesUpAfterPostgresOutage(t *testing.T) {
	t.Parallel()
	b := setup(t)
	text := strings.Repeat("word ", 60) + "end"
	in := b.claim(t, b.create(t), "slow 10ms: "+text)
	turn := b.begin(t, in)
	b.await(t, in.RunID, "text_delta")
	for cuts := 0; ; {
		select {
		case <-turn.done:
			if turn.err == nil {
				require.Positive(t, cuts)
				require.Equal(t, text, b.output(t, in.RunID))
				require.Len(t, b.of(t, in.RunID, "turn_end"), 1)
				return
			}
			requirePassing(t, turn.err)
			turn = b.begin(t, in) // as the engine does
		case <-time.After(100 * time.Millisecond):
			if cuts < 5 {
				b.sql(t, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()`)
				cuts++
			}
		}
	}
}

// TestAttemptSurvivesInterruptionAtAnyFrame interrupts the first attempt before and after each of its steps
// in turn, until it gets through.
func TestAttemptSurvivesInterruptionAtAnyFrame(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ready := b.create(t)
	const text = "slow 2ms: a word at a time so that there are many frames and many commits"
	prompts := 0
	cutAt := func(n int64, late bool) (through bool) {
		ctx, cancel := context.WithCancel(b.ctx)
		defer cancel()
		var count atomic.Int64
		hit := func() {
			if count.Add(1) == n {
				cancel()
			}
		}
		before, after := func(string, *eventlog.Append) error { hit(); return nil }, func(string) { hit() }
		if late {
			before = nil
		} else {
			after = nil
		}
		b.steps.set(before, after)
		b.driver.set(func(f *faulty) { f.exec = func(driver.ExecRequest) error { hit(); return nil } })
		in := b.claim(t, ready, text)
		prompts++
		_, first := do(b, attempt{ctx: ctx}, b.turns.RunTurn, in)
		b.steps.set(nil, nil)
		b.driver.repair()
		result, err := b.turn(in)
		require.NoError(t, err, "cut at %d (after: %v) with %v", n, late, first)
		require.Equal(t, session.OutcomeCompleted, result.Outcome)
		require.Equal(t, strings.TrimPrefix(text, "slow 2ms: "), b.output(t, in.RunID), "cut at %d (after: %v)", n, late)
		require.Len(t, b.of(t, in.RunID, "turn_end"), 1, "cut at %d (after: %v)", n, late)
		return ctx.Err() == nil
	}
	deadline := time.Now().Add(12 * time.Second)
	for _, late := range []bool{false, true} {
		for n := int64(1); !cutAt(n, late) && time.Now().Before(deadline); n++ {
			continue
		}
	}
	require.Greater(t, prompts, 6, "there was nothing to cut")
	b.events(t)
	require.Contains(t, b.say(t, ready, "recall"), fmt.Sprintf("%d prompts", prompts+1), "each prompt was delivered once")
}

// The result of the attempt that ends a run lists the pending commands and prompts. An attempt that
// finds the run ended lists nothing; the workflow then reads them.
func TestTurnEndReportsPendingWork(t *testing.T) {
	t.Parallel()
	b := setup(t)
	in := b.claim(t, b.create(t), "hello")
	next, _, _, err := b.db.PromptSubmit(b.ctx, session.Prompt{ID: session.NewID(session.PromptPrefix), SessionID: b.id, Content: "and now"})
	require.NoError(t, err)
	in.Look = true
	result, err := b.turn(in)
	require.NoError(t, err)
	require.NotNil(t, result.Waiting)
	require.Equal(t, []session.QueuedPrompt{{ID: next.ID, Ordinal: next.Ordinal}}, result.Waiting.Next)
	require.EqualValues(t, 1, result.Waiting.Queued)
	require.Equal(t, session.DefaultIdleTimeout, result.Waiting.IdleTimeout)

	again, err := b.turn(in)
	require.NoError(t, err)
	require.Equal(t, session.OutcomeCompleted, again.Outcome)
	require.Nil(t, again.Waiting)
}
