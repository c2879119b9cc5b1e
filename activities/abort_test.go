package activities_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/activities"
	"github.com/overwinter-dev/overwinter/internal/agent/demo"
	"github.com/overwinter-dev/overwinter/internal/session"
)

func (b *harness) abort(in activities.TurnRequest) error {
	_, err := do(b, attempt{}, plain(b.control.AbortRun), activities.AbortRequest{
		SessionID: b.id, Agent: demo.Name, RunID: in.RunID, Generation: in.Generation, SandboxID: in.SandboxID,
	})
	return err
}

// TestAbortReachesAgentImmediately measures the time from the call to the agent's last output in
// the run. It uses the best of many attempts, because the machine may be busy.
func TestAbortReachesAgentImmediately(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ready := b.create(t)
	const limit = 100 * time.Millisecond
	first, best := time.Now(), time.Hour
	for best >= limit {
		require.Less(t, time.Since(first), waitLimit, "the quickest abort took %s", best)
		in := b.claim(t, ready, "sleep 10m")
		turn := b.begin(t, in)
		b.await(t, in.RunID, "block_start")
		began := time.Now()
		require.NoError(t, b.abort(in))
		result, err := turn.wait(t)
		require.NoError(t, err)
		require.Equal(t, session.OutcomeCancelled, result.Outcome)
		closed := b.of(t, in.RunID, "block_complete")
		require.NotEmpty(t, closed)
		best = min(best, closed[len(closed)-1].At.Sub(began))
		require.NoError(t, b.abort(in), "one that comes late breaks nothing off")
	}
	t.Logf("an abort took %v", best)
	require.Contains(t, b.say(t, ready, "recall"), "prompts", "the agent continues")
}

func TestAgentThatIgnoresAbortIsKilled(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ready := b.create(t)
	in := b.claim(t, ready, "$ kill -STOP $PPID; trap '' INT TERM; sleep 600")
	turn := b.begin(t, in)
	b.await(t, in.RunID, "block_start")
	require.Eventually(t, func() bool { return b.shell(t, ready.SandboxID, stopped) == "yes\n" }, waitLimit, 50*time.Millisecond)
	began := time.Now()
	require.NoError(t, b.abort(in))
	result, err := turn.wait(t)
	require.NoError(t, err)
	require.Equal(t, session.OutcomeCancelled, result.Outcome)
	grace := demo.New().Interrupt(in.RunID).Grace
	require.GreaterOrEqual(t, time.Since(began), grace-time.Second)
	require.Less(t, time.Since(began), grace+time.Minute)
	require.Contains(t, b.say(t, ready, "recall"), "2 prompts", "and started again with its memory")
}

// stopped is a script that reports whether SIGSTOP has stopped the agent.
const stopped = `for p in /proc/[0-9]*; do
	case "$(tr '\0' ' ' <$p/cmdline 2>/dev/null)" in *"demo-ag""ent"*) case "$(cat $p/stat)" in *") T "*) echo yes;; esac;; esac
done; true`

func TestAbortInDeadSandboxReportsLoss(t *testing.T) {
	t.Parallel()
	b := setupMemory(t)
	ready := b.create(t)
	b.memory.Kill(ready.SandboxID, 1)
	err := b.abort(activities.TurnRequest{RunID: session.NewID(session.RunPrefix), Generation: 1, SandboxID: ready.SandboxID})
	requireType(t, activities.SandboxLost, err)
}
