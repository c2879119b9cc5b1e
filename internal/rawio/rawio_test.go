package rawio_test

import (
	"bytes"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/overwinter-dev/overwinter/internal/rawio"
)

func TestPipeTransfersMoreThanItsBuffer(t *testing.T) {
	t.Parallel()
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer r.Close()
	require.True(t, rawio.Nonblocking(r))
	sent := bytes.Repeat([]byte("0123456789"), 1<<16)
	var writing sync.WaitGroup
	writing.Go(func() {
		n, err := rawio.NewWriter(w).Write(sent)
		if err != nil || n != len(sent) {
			t.Errorf("wrote %d bytes: %v", n, err)
		}
		_ = w.Close()
	})
	got, err := io.ReadAll(rawio.NewReader(r))
	require.NoError(t, err)
	writing.Wait()
	require.True(t, bytes.Equal(sent, got))
	n, err := rawio.NewReader(r).Read(nil)
	require.NoError(t, err)
	require.Zero(t, n)
}

func TestWriteErrors(t *testing.T) {
	t.Parallel()
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer w.Close()
	raw := rawio.NewWriter(w)
	size, err := unix.FcntlInt(w.Fd(), unix.F_GETPIPE_SZ, 0)
	require.NoError(t, err)
	require.NoError(t, unix.SetNonblock(int(w.Fd()), true)) // Fd has made it blocking
	var n int
	var hung error
	var writing sync.WaitGroup
	writing.Go(func() { n, hung = raw.Write(make([]byte, 2*size)) })
	require.Eventually(t, func() bool {
		conn, err := r.SyscallConn()
		require.NoError(t, err)
		var held int
		require.NoError(t, conn.Control(func(fd uintptr) { held, err = unix.IoctlGetInt(int(fd), unix.TIOCINQ) }))
		return err == nil && held == size
	}, 2*time.Minute, time.Millisecond, "the pipe is full")
	require.NoError(t, w.SetWriteDeadline(time.Now()))
	writing.Wait()
	require.ErrorIs(t, hung, os.ErrDeadlineExceeded, "a deadline ends a write for which there is no room")
	require.Equal(t, size, n)
	require.NoError(t, w.SetWriteDeadline(time.Time{}))
	require.NoError(t, r.Close())
	_, err = raw.Write([]byte("x"))
	require.ErrorIs(t, err, unix.EPIPE)
	require.NoError(t, w.Close())
	_, err = raw.Write([]byte("x"))
	require.Error(t, err)
}

func TestBlockingFileIsUsedUnchanged(t *testing.T) {
	t.Parallel()
	plain, err := os.Create(filepath.Join(t.TempDir(), "file"))
	require.NoError(t, err)
	defer plain.Close()
	require.False(t, rawio.Nonblocking(plain))
	require.Same(t, plain, rawio.NewWriter(plain))
	require.Same(t, plain, rawio.NewReader(plain))

	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer r.Close()
	defer w.Close()
	w.Fd() // makes it blocking
	require.False(t, rawio.Nonblocking(w))
}

func TestSocket(t *testing.T) {
	t.Parallel()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	var ends [2]net.Conn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "socket")
		ends[i], err = net.FileConn(f)
		require.NoError(t, err)
		require.NoError(t, f.Close())
		defer ends[i].Close()
	}
	_, err = rawio.NewWriter(ends[0].(*net.UnixConn)).Write([]byte("hello"))
	require.NoError(t, err)
	require.NoError(t, ends[0].Close())
	got, err := io.ReadAll(ends[1])
	require.NoError(t, err)
	require.Equal(t, "hello", string(got))
}

func TestPipesAtStdinAndStdoutAreUnblocked(t *testing.T) {
	t.Parallel()
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer r.Close()
	defer w.Close()
	shared := rawio.Unblock(w)
	require.NotNil(t, shared)
	require.NotEqual(t, w.Fd(), shared.Fd(), "it is closed by itself")
	require.NoError(t, shared.Close())
	in := rawio.Unblock(r)
	require.NotNil(t, in)
	require.True(t, rawio.Nonblocking(in))
	_, err = w.WriteString("hello")
	require.NoError(t, err)
	got := make([]byte, 8)
	n, err := rawio.NewReader(in).Read(got)
	require.NoError(t, err)
	require.Equal(t, "hello", string(got[:n]))
	require.NoError(t, in.Close())
	plain, err := os.Create(filepath.Join(t.TempDir(), "file"))
	require.NoError(t, err)
	defer plain.Close()
	require.Nil(t, rawio.Unblock(plain))
	require.Nil(t, rawio.Unblock(&bytes.Buffer{}))
	require.NoError(t, w.Close())
	require.Nil(t, rawio.Unblock(w))
}
