package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/runner"
)

func TestAbortReachesAgentWithin100ms(t *testing.T) {
	t.Parallel()
	b := setup(t)
	// The limit covers the whole path: a separate process, socket, stdin, answer, journal. The
	// fastest of several attempts shows the duration on an idle CPU.
	const limit = 100 * time.Millisecond
	began, quickest := time.Now(), deadline
	for n := 0; quickest >= limit; n++ {
		require.Less(t, time.Since(began), deadline, "the quickest of %d took %s", n, quickest)
		run := fmt.Sprint("run_", n)
		w := b.started(run, `echo ready; read -r go; read -r abort; echo "heard $abort"; read -r more; echo "and $more"`, "go\n")
		w.line("ready")
		asked := time.Now()
		require.True(t, b.abort(run, runner.Interrupt{Stdin: []byte("stop\n"), Grace: 2 * deadline}))
		f := w.line("heard stop")
		quickest = min(quickest, f.At.Sub(asked))
		require.NoError(t, w.Settle())
		require.NoError(t, w.Input([]byte("on\n")))
		w.line("and on")
		require.Zero(t, w.exit().Code)
	}
}

func TestAbortBySignalReachesProcessGroup(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.started("run_1", `trap 'echo caught; exit 3' INT; echo ready; sleep 1000 & wait`, "go\n")
	w.line("ready")
	require.True(t, b.abort("run_1", runner.Interrupt{Signal: "INT", Grace: 2 * deadline}))
	w.line("caught")
	r := w.exit()
	require.Equal(t, 3, r.Code)
	require.False(t, r.Interrupted, "it ended by itself")
}

func TestProcessTreeThatIgnoresAbortIsKilled(t *testing.T) {
	t.Parallel()
	b := setup(t)
	// One child in a separate session, one double-forked from there, one that ignores every signal
	// that can be ignored: none of them may outlive the agent.
	script := `trap '' INT TERM HUP
setsid sh -c 'trap "" TERM; echo $$ > a; sleep 1000' &
setsid sh -c '(setsid sh -c "echo \$\$ > b; exec sleep 1000" &) ; exit' &
sh -c 'trap "" TERM INT; echo $$ > c; while :; do sleep 1000; done' &
while [ ! -s a ] || [ ! -s b ] || [ ! -s c ]; do sleep 0.01; done
echo ready; while :; do sleep 1000; done`
	w := b.started("run_1", script, "")
	w.line("ready")
	var pids []int
	for _, name := range []string{"a", "b", "c"} {
		data, err := os.ReadFile(filepath.Join(b.paths.Workspace, name))
		require.NoError(t, err)
		pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
		require.NoError(t, err)
		require.NoError(t, syscall.Kill(pid, 0))
		pids = append(pids, pid)
	}
	require.True(t, b.abort("run_1", runner.Interrupt{Signal: "INT", Grace: 50 * time.Millisecond}))
	r := w.exit()
	require.Equal(t, -1, r.Code)
	require.Equal(t, "killed", r.Signal)
	require.True(t, r.Interrupted)
	require.Equal(t, runner.StoppedInterrupt, r.Stopped)
	for _, pid := range pids {
		require.ErrorIs(t, syscall.Kill(pid, 0), syscall.ESRCH, "process %d is left", pid)
	}
	require.False(t, b.ping().Agent)
}

func TestForkingProcessTreeIsKilled(t *testing.T) {
	t.Parallel()
	b := setup(t)
	// Each generation starts the next in a new session and exits.
	script := `cat > fork.sh <<'X'
touch alive; setsid sh fork.sh & exit
X
setsid sh fork.sh & while [ ! -e alive ]; do sleep 0.01; done; echo ready; sleep 1000`
	w := b.started("run_1", script, "")
	w.line("ready")
	require.NoError(t, w.Interrupt(runner.Interrupt{}))
	require.True(t, w.exit().Interrupted)
	flag := filepath.Join(b.paths.Workspace, "alive")
	require.NoError(t, os.Remove(flag))
	w = b.started("run_2", `sleep 0.1; [ -e alive ] && echo left || echo clean`, "")
	w.line("clean")
}

func TestSettledTurnIsNotKilled(t *testing.T) {
	t.Parallel()
	b := setup(t)
	grace := 100 * time.Millisecond
	for settled := false; !settled; {
		grace *= 2 // until the grace period is long enough on this machine
		w := b.started(fmt.Sprint("run_", grace), echo, "one\n")
		w.line("got one")
		began := time.Now()
		require.NoError(t, w.Interrupt(runner.Interrupt{Stdin: []byte("abort\n"), Grace: grace}))
		require.NoError(t, w.Settle())
		require.NoError(t, w.Flush(1)) // the answer follows the settling
		w.until(func(m runner.Message) bool { _, ok := m.(*runner.Flushed); return ok })
		if settled = time.Since(began) < grace; !settled {
			_ = w.Close()
			b.seal(runner.SealRequest{}) // ends the agent, unless it was already killed
		}
	}
	// An unsettled interrupt with the same grace, sent later, kills; so the first one would have
	// killed by now.
	pid := b.ping().AgentPID
	w := b.started("run_2", echo, "two\n")
	w.line("got two")
	time.AfterFunc(grace+50*time.Millisecond, func() { _ = w.Input([]byte("late\n")) })
	w.line("got late")
	require.Equal(t, pid, b.ping().AgentPID)
	require.NoError(t, w.Interrupt(runner.Interrupt{Stdin: []byte("abort\n"), Grace: grace}))
	require.True(t, w.exit().Interrupted)
}

func TestAbortOfEndedRunHasNoEffect(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.started("run_1", echo, "one\n")
	w.line("got one")
	w = b.started("run_2", echo, "two\n")
	w.line("got two")
	require.False(t, b.abort("run_1", runner.Interrupt{Stdin: []byte("x\n")}))
	require.NoError(t, w.Input([]byte("three\n")))
	w.line("got three")
	require.Equal(t, []string{"got two", "got three"}, texts(w.frames))
}

func TestEarlyAbortWaitsForItsRun(t *testing.T) {
	t.Parallel()
	b := setup(t)
	require.True(t, b.abort("run_2", runner.Interrupt{Stdin: []byte("abort\n"), Grace: 2 * deadline}))
	w := b.started("run_1", echo, "one\n")
	w.line("got one")
	w.delivery(runner.Delivered)
	require.True(t, b.abort("run_2", runner.Interrupt{Stdin: []byte("abort two\n"), Grace: 2 * deadline}))
	w = b.started("run_2", echo, "two\n")
	w.line("got abort two")
	require.Equal(t, []string{"got two", "got abort two"}, texts(w.frames))

	require.True(t, b.abort("run_3", runner.Interrupt{}))
	w = b.started("run_3", echo, "three\n")
	require.True(t, w.exit().Interrupted)
}

func TestAgentClosingStdinEndsRun(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.started("run_1", `exec <&-; echo closed; while :; do sleep 1000; done`, strings.Repeat("x", 1<<20))
	w.line("closed")
	require.Equal(t, runner.StoppedStdin, w.exit().Stopped)
}

func TestUnreadingAgentIsKilled(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.started("run_1", `echo ready; while :; do sleep 1000; done`, strings.Repeat("x", 1<<20)) // more than fits into a pipe
	w.line("ready")
	require.Equal(t, runner.Delivering, b.attach(runner.Hello{Run: "run_1"}).Welcome().Delivery)
	require.True(t, b.abort("run_1", runner.Interrupt{Stdin: []byte("stop\n"), Grace: 20 * time.Millisecond}))
	w = b.attach(runner.Hello{Run: "run_1"})
	require.True(t, w.exit().Interrupted)
}

func TestUnknownSignalIsRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.started("run_1", echo, "one\n")
	w.line("got one")
	_, stderr, code := b.run(b.paths.Abort(runner.AbortRequest{
		Token: b.token, Run: "run_1", Interrupt: runner.Interrupt{Signal: "NONSENSE", Grace: 2 * deadline},
	}))
	require.Equal(t, runner.ExitRefused, code)
	require.Contains(t, stderr, "NONSENSE")
	require.True(t, b.ping().Agent, fmt.Sprint("the agent lives on: ", stderr))
}
