package runner_test

import (
	"bytes"
	"io"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/runner"
)

// counted counts the bytes that are read.
type counted struct {
	io.ReadCloser
	bytes atomic.Int64
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	c.bytes.Add(int64(n))
	return n, err
}

// TestLinkReadsOneLargeMessageAhead checks a runner that sends large lines to a busy worker.
func TestLinkReadsOneLargeMessageAhead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		fromWorker, stdin := io.Pipe()
		stdout, toWorker := io.Pipe()
		go func() { _, _ = io.Copy(io.Discard, fromWorker) }()
		const size, many = 4 << 20, 5
		go func() {
			_ = runner.WriteMessage(toWorker, &runner.Welcome{Version: runner.ProtocolVersion})
			for i := range many {
				_ = runner.WriteMessage(toWorker, &runner.Frame{No: int64(i), Stream: runner.Stdout, Data: bytes.Repeat([]byte("x"), size)})
			}
		}()
		read := &counted{ReadCloser: stdout}
		link, err := runner.Dial(t.Context(), stdin, read, runner.Hello{Run: "run"}, nil)
		require.NoError(t, err)
		for i := range many {
			synctest.Wait() // the link reads up to its bound
			require.Less(t, read.bytes.Load(), int64((i+1)*size+1<<20), "before message %d is taken", i)
			m, err := link.Next(t.Context())
			require.NoError(t, err)
			require.Len(t, m.(*runner.Frame).Data, size)
		}
		require.NoError(t, link.Close())
		require.NoError(t, fromWorker.Close())
		require.NoError(t, toWorker.Close())
	})
}
