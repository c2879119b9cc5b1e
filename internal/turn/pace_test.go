package turn

import (
	"bufio"
	"context"
	"io"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/runner"
)

func TestTurnsShareBacklog(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		window, turns int64
		ahead         float64
		want          int64
	}{
		{minWindow, 1, 1, 2 * minWindow},
		{maxWindow, 1, 1, maxWindow},
		{maxWindow, 0, 1, maxWindow},
		{4096, 2, 1, 6144},
		{4096, 4, 1, 3072},
		{maxWindow, 100, 1, 122},
		{maxWindow, 100, 0.8, 152},
		{maxWindow, 100, 0.1, 244},
		{maxWindow, 100, 0, 244},
		{maxWindow, 100, 9, minWindow},
		{maxWindow, 50, 1.5, 163},
		{maxWindow, 50, 9, 122},
		{maxWindow, 10_000, 1, minWindow},
		{maxWindow, 10_000, 0.1, 2 * minWindow},
	} {
		require.Equal(t, c.want, nextWindow(c.window, c.turns, c.ahead), "%+v", c)
	}
}

// TestLateTurnsCatchUp simulates a machine that is too slow for its agents. One agent at a time
// prints until it has used its window, and then goes to the end of the queue. The test counts lines
// and uses no clock.
func TestLateTurnsCatchUp(t *testing.T) {
	t.Parallel()
	const (
		turns   = 100
		perStep = 10     // lines of all agents per step of a millisecond
		steps   = 10_000 // 1,000 lines for each agent
		spread  = 20     // steps between the starts of two turns
		delay   = 200    // steps until printed lines are handled and the runner is notified
	)
	type agent struct {
		*pacer
		printed, next int64
		queued        bool
	}
	type handled struct {
		*agent
		upto int64
	}
	all := &paces{}
	all.linked.Store(turns)
	agents := make([]*agent, turns)
	for i := range agents {
		agents[i] = &agent{pacer: newPacer(nil, all, 0, 0)}
		all.join(agents[i].pacer)
	}
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	var queue []*agent
	due := map[int][]handled{}
	for step := range steps {
		if step%spread == 0 && step/spread < turns {
			queue = append(queue, agents[step/spread])
			agents[step/spread].queued = true
		}
		for _, h := range due[step] {
			h.handled.Store(h.upto)
			if !h.half() {
				continue
			}
			h.window.Store(all.next(h.pacer, h.upto-h.sent.Load(), start.Add(time.Duration(step)*time.Millisecond)))
			h.sent.Store(h.upto)
			h.next = h.upto
			if !h.queued && h.printed < h.next+h.window.Load() {
				queue = append(queue, h.agent)
				h.queued = true
			}
		}
		delete(due, step)
		for left := int64(perStep); left > 0 && len(queue) > 0; {
			a := queue[0]
			n := min(left, a.next+a.window.Load()-a.printed)
			a.printed, left = a.printed+n, left-n
			due[step+delay] = append(due[step+delay], handled{a, a.printed})
			if a.printed >= a.next+a.window.Load() {
				queue, a.queued = queue[1:], false
			}
		}
	}
	least, most := int64(math.MaxInt64), int64(0)
	for _, a := range agents {
		least, most = min(least, a.printed), max(most, a.printed)
	}
	t.Logf("%d lines of the agent with the fewest, %d of the one with the most", least, most)
	require.Greater(t, 4*least, 3*most)
}

// TestQuietTurnsDoNotCount checks that an agent that prints fast does not count as ahead of agents
// that print slowly.
func TestQuietTurnsDoNotCount(t *testing.T) {
	t.Parallel()
	all := &paces{}
	all.linked.Store(50)
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	var fast *pacer
	for i := range 50 {
		p := newPacer(nil, all, 0, 0)
		all.join(p)
		if i == 0 {
			fast = p
			fast.window.Store(maxWindow)
			continue
		}
		all.next(p, 10, now)
	}
	const share = paceFrames / 50
	require.InDelta(t, share, all.next(fast, 10_000, now), share/10)
	all.leave(fast)
	require.Len(t, all.recent, 49)
	later := now.Add(time.Minute)
	slow := newPacer(nil, all, 0, 0)
	all.join(slow)
	all.next(slow, 1, later)
	for p, n := range all.recent {
		require.LessOrEqual(t, n, int64(1), "old output does not count")
		require.NotNil(t, p)
	}
}

// TestRunnerIsNotifiedOfHalfWindowAtTime checks that the runner is notified each time half of its
// window is handled, and that a turn with few frames sends nothing.
func TestRunnerIsNotifiedOfHalfWindowAtTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		runnerEnd, link := linkedRunner(t)
		var windows []runner.Taken
		go func() {
			for {
				m, err := runner.ReadMessage(runnerEnd)
				if err != nil {
					return // the test has ended
				}
				windows = append(windows, *m.(*runner.Taken))
			}
		}()
		var all paces
		all.linked.Store(1)
		p := newPacer(link, &all, 1000, 1009)
		ctx, cancel := context.WithCancel(t.Context())
		go p.send(ctx)
		frame := int64(1009)
		took := func(frames int64, want ...runner.Taken) {
			t.Helper()
			windows, frame = nil, frame+frames
			p.took(frame)
			synctest.Wait()
			require.Equal(t, want, windows)
		}
		took(31)
		took(1, runner.Taken{Next: 42, Window: 128})
		took(63)
		took(1, runner.Taken{Next: 106, Window: 256})
		all.linked.Store(1000)
		took(127)
		took(9, runner.Taken{Next: 242, Window: minWindow})
		took(31)
		took(1, runner.Taken{Next: 274, Window: minWindow})

		cancel()
		<-p.done
	})
}

// TestShrinkingWindowIsMoved sends a smaller window when the agent already waits and prints nothing
// that would move the window.
func TestShrinkingWindowIsMoved(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		runnerEnd, link := linkedRunner(t)
		var all paces
		all.linked.Store(1000)
		p := newPacer(link, &all, 0, -1)
		p.window.Store(maxWindow)
		ctx, cancel := context.WithCancel(t.Context())
		go p.send(ctx)
		p.took(maxWindow/2 - 1)
		synctest.Wait() // the runner does not read the message yet
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

// linkedRunner returns a link, and a reader of the messages that its runner receives after the
// welcome.
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

// TestDeferredFramesAreHandled checks that an agent that prints many frames without events does not
// wait for their commit.
func TestDeferredFramesAreHandled(t *testing.T) {
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
