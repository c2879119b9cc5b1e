package runner

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/semaphore"

	"github.com/overwinter-dev/overwinter/internal/workspacefile"
)

// hostile is a sandbox whose end of a link the test writes.
type hostile struct {
	*Link
	stdout io.Writer    // to the worker
	read   atomic.Int64 // bytes that the worker has read
	io.ReadCloser
}

func (h *hostile) Read(p []byte) (int, error) {
	n, err := h.ReadCloser.Read(p)
	h.read.Add(int64(n))
	return n, err
}

func newHostile(t *testing.T, memory Memory) *hostile {
	t.Helper()
	fromWorker, stdin := io.Pipe()
	stdout, toWorker := io.Pipe()
	h := &hostile{stdout: toWorker, ReadCloser: stdout}
	go func() { _, _ = io.Copy(io.Discard, fromWorker) }()
	go func() { _ = WriteMessage(toWorker, &Welcome{Version: ProtocolVersion}) }()
	var err error
	h.Link, err = Dial(t.Context(), stdin, readOnly{h}, Hello{Run: "run"}, memory)
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = errors.Join(h.Link.Close(), fromWorker.Close(), toWorker.Close())
	})
	return h
}

type readOnly struct{ h *hostile }

func (r readOnly) Read(p []byte) (int, error) { return r.h.Read(p) }
func (r readOnly) Close() error               { return r.h.ReadCloser.Close() }

// TestLargeMessageIsReadWhenItsMemoryIsReserved begins without free memory for the message.
func TestLargeMessageIsReadWhenItsMemoryIsReserved(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const size = 16 << 20
		memory := semaphore.NewWeighted(MaxLinkMessage)
		require.NoError(t, memory.Acquire(t.Context(), MaxLinkMessage))
		h := newHostile(t, memory)
		go func() {
			_ = WriteMessage(h.stdout, &Frame{Stream: Stdout, Data: bytes.Repeat([]byte("x"), size)})
		}()
		synctest.Wait()
		require.Less(t, h.read.Load(), int64(128<<10))
		<-time.After(time.Hour)
		require.Equal(t, time.Now(), h.Progress(), "it is not the runner that is slow")
		memory.Release(MaxLinkMessage)
		m, err := h.NextHeld(t.Context())
		require.NoError(t, err)
		require.Len(t, m.Message.(*Frame).Data, size)
		require.Equal(t, m.Bytes, m.Reserved)
		require.False(t, memory.TryAcquire(MaxLinkMessage-size))
		memory.Release(m.Reserved)
		require.True(t, memory.TryAcquire(MaxLinkMessage))
	})
}

// TestEveryReservationIsReleased ends links in each state of a large message.
func TestEveryReservationIsReleased(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		memory := semaphore.NewWeighted(MaxLinkMessage)
		free := func() {
			t.Helper()
			synctest.Wait()
			require.True(t, memory.TryAcquire(MaxLinkMessage))
			memory.Release(MaxLinkMessage)
		}
		large := &Frame{Stream: Stdout, Data: bytes.Repeat([]byte("x"), 4<<20)}
		var whole bytes.Buffer
		require.NoError(t, WriteMessage(&whole, large))
		for _, sent := range []int{5, 2 << 20, whole.Len()} { // announced, partly sent, and waiting to be taken
			h := newHostile(t, memory)
			go func() { _, _ = h.stdout.Write(whole.Bytes()[:sent]) }()
			synctest.Wait()
			require.False(t, memory.TryAcquire(MaxLinkMessage))
			require.NoError(t, h.Link.Close())
			free()
		}
		h := newHostile(t, memory)
		go func() { _ = WriteMessage(h.stdout, large) }()
		_, err := h.Next(t.Context())
		require.NoError(t, err)
		free()
		// A link that serves no run must not reserve memory for the sandbox.
		go func() {
			_ = WriteMessage(h.stdout, &Detached{})
			_ = WriteMessage(h.stdout, large)
		}()
		require.NoError(t, h.Detach(t.Context()))
		_, err = h.Next(t.Context())
		require.ErrorContains(t, err, "serves no run")
		free()
	})
}

// TestMessagesAreBoundedByTheirKind announces messages that are too large, without sending them.
func TestMessagesAreBoundedByTheirKind(t *testing.T) {
	t.Parallel()
	for kind, bound := range map[messageType]uint32{
		typeFrame: MaxLinkMessage, typeSegment: MaxSegment + maxHeader, typeChanged: workspacefile.MaxBytes + maxHeader,
		typeDiff: maxDiff, typeError: maxJSON, typeDelivery: maxJSON, 200: maxJSON,
	} {
		h := newHostile(t, semaphore.NewWeighted(MaxLinkMessage))
		head := binary.BigEndian.AppendUint32([]byte{byte(kind)}, bound+1)
		_, err := h.stdout.Write(head)
		require.NoError(t, err)
		_, err = h.Next(t.Context())
		require.ErrorContains(t, err, "exceeds the bound", "type %d", kind)
	}
}

// TestSmallMessagesAreNotReadAheadWithoutEnd sends messages continuously to a worker that takes
// none.
func TestSmallMessagesAreNotReadAheadWithoutEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHostile(t, semaphore.NewWeighted(MaxLinkMessage))
		go func() {
			for WriteMessage(h.stdout, &Frame{Stream: Stdout, Data: make([]byte, 400<<10)}) == nil {
			}
		}()
		synctest.Wait()
		require.Less(t, h.read.Load(), int64(maxUnread+512<<10))
	})
}

// TestLinksShareMemoryOfWorker measures the heap while many sandboxes send large lines that no
// turn commits.
func TestLinksShareMemoryOfWorker(t *testing.T) { //nolint:paralleltest // measures the heap
	const links, size, room = 24, 16 << 20, 3 * (16<<20 + 64)
	memory := semaphore.NewWeighted(room)
	line := bytes.Repeat([]byte("x"), size)
	heap := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := heap()
	all := make([]*hostile, links)
	for i := range all {
		h := newHostile(t, memory)
		all[i] = h
		go func() { _ = WriteMessage(h.stdout, &Frame{Stream: Stdout, Data: line}) }()
	}
	reading := func() (n int) {
		for _, h := range all {
			if h.read.Load() > size {
				n++
			}
		}
		return n
	}
	require.Eventually(t, func() bool { return reading() == 3 }, time.Minute, time.Millisecond)
	require.Less(t, heap()-before, int64(room+links*(256<<10)))
	// All messages arrive, one after the other.
	taken := make(chan error, links)
	for _, h := range all {
		go func() {
			m, err := h.NextHeld(context.Background())
			if err == nil && len(m.Message.(*Frame).Data) != size {
				err = errors.New("the message is not whole")
			}
			m.Message = nil
			memory.Release(m.Reserved)
			taken <- err
		}()
	}
	for range links {
		require.NoError(t, <-taken)
	}
}

// endless is a stream without a newline.
type endless struct{ read int64 }

func (e *endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	e.read += int64(len(p))
	return len(p), nil
}

func TestLineOfSealIsBounded(t *testing.T) {
	t.Parallel()
	var stream endless
	_, err := ReadSeal(&stream, func(Message) error { return nil })
	require.ErrorContains(t, err, "more than 16777216 bytes")
	require.Less(t, stream.read, int64(maxSealLine+128<<10))

	lines := `{"segment":{"Path":"/a","Version":1,"Offset":0,"Data":"YQ=="}}` + "\n" + `{"seal":{"manifest":{"agentFiles":[],"lastSeq":0},"lastFrame":7}}`
	for _, end := range []string{"", "\n"} {
		var got []Message
		seal, err := ReadSeal(bytes.NewBufferString(lines+end), func(m Message) error {
			got = append(got, m)
			return nil
		})
		require.NoError(t, err)
		require.EqualValues(t, 7, seal.LastFrame)
		require.Equal(t, []Message{&Segment{Path: "/a", Version: 1, Data: []byte("a")}}, got)
	}
	_, err = ReadSeal(bytes.NewBufferString("\n"), func(Message) error { return nil })
	require.Error(t, err)
}
