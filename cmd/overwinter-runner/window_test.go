package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/runner"
)

const (
	// windowed is the window of these tests' workers, in frames.
	windowed = 100
	// counted is the number of lines that agents print: many times what fits into their pipe.
	counted = 100_000
)

// counts prints the lines and then creates a file in the workspace.
var counts = fmt.Sprintf(`read -r go; seq 1 %d; : > done; read -r end`, counted)

// windowedWorker starts a run with a window.
func (b *sandbox) windowedWorker(script string) *worker {
	b.t.Helper()
	w := b.attach(runner.Hello{Run: "run_1", Window: windowed})
	require.True(b.t, w.Welcome().Window)
	require.NoError(b.t, w.Start(runner.Start{Launch: b.shell(script), Input: []byte("go\n")}))
	return w
}

// filled reads frames until the window that begins at next is full, and checks that no further
// frames are sent.
func (w *worker) filled(next int64) {
	w.t.Helper()
	last := next + windowed - 1
	w.until(func(m runner.Message) bool { f, ok := m.(*runner.Frame); return ok && f.No == last })
	require.NoError(w.t, w.Flush(next))
	w.until(func(m runner.Message) bool { f, ok := m.(*runner.Flushed); return ok && f.ID == next })
	require.Equal(w.t, last, w.frames[len(w.frames)-1].No, "the agent is held back at the end of the window")
}

// counted checks that frames are the lines of counts, from the first on, each once.
func (w *worker) counted() {
	w.t.Helper()
	for i, f := range w.frames {
		if f.No != w.frames[0].No+int64(i) || string(f.Data) != strconv.FormatInt(f.No+1, 10) {
			w.t.Fatalf("frame %d after %d others: %d %q", i, w.frames[0].No, f.No, f.Data)
		}
	}
}

func (b *sandbox) done() bool {
	_, err := os.Stat(filepath.Join(b.paths.Workspace, "done"))
	return err == nil
}

func TestAgentWaitsForItsWorker(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.windowedWorker(counts)
	next := int64(0)
	for range 20 {
		w.filled(next)
		next += windowed / 2
		require.NoError(t, w.Taken(next, windowed))
	}
	require.False(t, b.done(), "the agent waits for its pipe")

	// A window may grow. The number of handled frames must not decrease.
	require.NoError(t, w.Taken(next, 4*counted))
	require.NoError(t, w.Taken(0, 1))
	w.line(strconv.Itoa(counted))
	w.counted()
	require.Len(t, w.frames, counted)
	b.file("done")
}

func TestAgentDoesNotWaitWithoutWorker(t *testing.T) {
	t.Parallel()
	t.Run("that has gone", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		w := b.windowedWorker(counts)
		w.filled(0)
		require.False(t, b.done())
		require.NoError(t, w.Close())
		b.file("done")

		// The next worker receives the output since then. It has no window, because the end of the output may
		// still be in the agent's pipe.
		w = b.attach(runner.Hello{Run: "run_1", From: 40})
		w.line(strconv.Itoa(counted))
		w.counted()
		require.Len(t, w.frames, counted-40)
	})
	t.Run("that has detached", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		w := b.windowedWorker(counts)
		w.filled(0)
		require.False(t, b.done())
		require.NoError(t, w.Detach(t.Context()))
		b.file("done")
	})
	t.Run("that another has displaced", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		w := b.windowedWorker(counts)
		w.filled(0)
		require.False(t, b.done())
		other := b.attach(runner.Hello{Run: "run_1", From: windowed}) // a worker of an earlier release has no window
		require.False(t, other.Welcome().Window)
		w.displaced()
		other.line(strconv.Itoa(counted))
		other.counted()
	})
}

func TestOutputWithoutBackpressure(t *testing.T) {
	t.Parallel()
	t.Run("stderr and stdin", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		w := b.windowedWorker(fmt.Sprintf(`read -r go; seq 1 %d & read -r more; echo "$more" >&2; wait; : > done; read -r end`, counted))
		w.filled(0)
		require.NoError(t, w.Input([]byte("complaint\n")))
		require.Equal(t, runner.Stderr, w.line("complaint").Stream)
		require.False(t, b.done())
	})
	t.Run("a turn that is interrupted", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		w := b.windowedWorker(counts)
		w.filled(0)
		require.False(t, b.done())
		require.True(t, b.abort("run_1", runner.Interrupt{Stdin: []byte("stop\n"), Grace: time.Hour}))
		w.line(strconv.Itoa(counted))
		require.Zero(t, w.exit().Code, "it has read its stdin")
		w.countedTo(counted)
	})
	t.Run("a turn that has ended", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		w := b.windowedWorker(counts)
		w.filled(0)
		require.False(t, b.done())
		require.NoError(t, w.Settle())
		w.line(strconv.Itoa(counted))
		w.counted()
	})
	t.Run("the rest of an agent that has ended", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		const held = 2000 // fits into the agent's pipe
		w := b.windowedWorker(fmt.Sprintf(`read -r go; seq 1 %d`, held))
		require.Zero(t, w.exit().Code)
		w.countedTo(held)
	})
	t.Run("an agent that is stopped", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		w := b.windowedWorker(`trap '' TERM; ` + counts)
		w.filled(0)
		b.seal(runner.SealRequest{Workspace: b.paths.Workspace, Grace: deadline})
		w.line(strconv.Itoa(counted))
		w.counted()
	})
}

// countedTo checks the lines that precede an exit frame.
func (w *worker) countedTo(n int) {
	w.t.Helper()
	require.Len(w.t, w.frames, n+1)
	w.frames = w.frames[:n]
	w.counted()
}
