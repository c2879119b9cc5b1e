package turn

import (
	"bufio"
	"context"
	"io"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/runner"
)

func TestTurnsShareWhatMayWait(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ window, turns, want int64 }{
		{minWindow, 1, 2 * minWindow},
		{maxWindow, 1, maxWindow},
		{maxWindow, 0, maxWindow},
		{4096, 4, maxWindow},
		{4096, 5, 6553},
		{maxWindow, 100, 327},
		{maxWindow, 128, minWindow},
		{maxWindow, 10_000, minWindow},
		{minWindow, 10_000, minWindow},
	} {
		require.Equal(t, c.want, nextWindow(c.window, c.turns), "%+v", c)
	}
}

// TestARunnerIsNotifiedOfHalfAWindowAtATime: a turn with few frames sends nothing.
func TestARunnerIsNotifiedOfHalfAWindowAtATime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		runnerEnd, link := linkedRunner(t)
		var heard []runner.Taken
		go func() {
			for {
				m, err := runner.ReadMessage(runnerEnd)
				if err != nil {
					return // the test is over
				}
				heard = append(heard, *m.(*runner.Taken))
			}
		}()
		var turns atomic.Int64
		turns.Store(1)
		p := newPacer(link, &turns, 1000, 1009)
		ctx, cancel := context.WithCancel(t.Context())
		go p.send(ctx)
		frame := int64(1009)
		took := func(frames int64, want ...runner.Taken) {
			t.Helper()
			heard, frame = nil, frame+frames
			p.took(frame)
			synctest.Wait()
			require.Equal(t, want, heard)
		}
		took(127)
		took(1, runner.Taken{Next: 138, Window: 512})
		took(255)
		took(1, runner.Taken{Next: 394, Window: 1024})
		turns.Store(1000)
		took(511)
		took(9, runner.Taken{Next: 914, Window: minWindow})
		took(127)
		took(1, runner.Taken{Next: 1042, Window: minWindow})

		cancel()
		<-p.done
	})
}

// TestAWindowThatShrinksOnItsWayIsMoved: the agent already waits when the runner gets the smaller
// window, and prints nothing that would move it.
func TestAWindowThatShrinksOnItsWayIsMoved(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		runnerEnd, link := linkedRunner(t)
		var turns atomic.Int64
		turns.Store(1000)
		p := newPacer(link, &turns, 0, -1)
		p.window.Store(maxWindow)
		ctx, cancel := context.WithCancel(t.Context())
		go p.send(ctx)
		p.took(maxWindow/2 - 1)
		synctest.Wait() // the runner does not read it yet
		p.took(maxWindow - 2)
		for _, want := range []runner.Taken{{Next: maxWindow / 2, Window: minWindow}, {Next: maxWindow - 1, Window: minWindow}} {
			m, err := runner.ReadMessage(runnerEnd)
			require.NoError(t, err)
			require.Equal(t, &want, m)
		}
		cancel()
		<-p.done
	})
}

// linkedRunner is a link, and what its runner reads after the welcome.
func linkedRunner(t *testing.T) (*bufio.Reader, *runner.Link) {
	t.Helper()
	fromWorker, toRunner := io.Pipe()
	fromRunner, toWorker := io.Pipe()
	r := bufio.NewReader(fromWorker)
	go func() {
		if _, err := runner.ReadMessage(r); err != nil {
			t.Error(err)
		}
		if err := runner.WriteMessage(toWorker, &runner.Welcome{Version: runner.ProtocolVersion, LastFrame: -1, Window: true}); err != nil {
			t.Error(err)
		}
	}()
	link, err := runner.Dial(t.Context(), toRunner, fromRunner, runner.Hello{Run: "run_1"}, nil)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, link.Close())
		require.NoError(t, fromWorker.Close())
	})
	return r, link
}

// TestFramesThatWaitForOthersAreHandled: an agent that prints many frames without events does not
// wait for their commit.
func TestFramesThatWaitForOthersAreHandled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, log := newDeferring(true)
		var messages []runner.Message
		for i := range int64(minWindow) {
			messages = append(messages, frameOf(i, ""))
		}
		link := &turnLink{pacer: newPacer(nil, nil, 0, -1)}
		require.NoError(t, a.commit(t.Context(), nil, messages))
		a.pace(link)
		require.Empty(t, log.appends)
		require.EqualValues(t, minWindow-1, link.pacer.handled.Load())
		require.Len(t, link.pacer.due, 1)
	})
}
