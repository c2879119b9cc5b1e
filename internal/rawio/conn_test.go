package rawio_test

import (
	"bytes"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/rawio"
)

// pair returns both ends of a connection over loopback, with raw reads and writes.
func pair(t *testing.T) (client, server net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	client, err = rawio.Dial((&net.Dialer{}).DialContext)(t.Context(), "tcp", l.Addr().String())
	require.NoError(t, err)
	server, err = rawio.NewListener(l).Accept()
	require.NoError(t, err)
	t.Cleanup(func() { _, _ = client.Close(), server.Close() })
	return client, server
}

func TestConnectionsTransferMoreThanTheirBuffers(t *testing.T) {
	t.Parallel()
	client, server := pair(t)
	sent := bytes.Repeat([]byte("0123456789"), 1<<20)
	var writing sync.WaitGroup
	writing.Go(func() {
		n, err := client.Write(sent)
		if err != nil || n != len(sent) {
			t.Errorf("wrote %d bytes: %v", n, err)
		}
		_ = client.Close()
	})
	got, err := io.ReadAll(server)
	require.NoError(t, err)
	writing.Wait()
	require.True(t, bytes.Equal(sent, got))
}

// TestErrorsOfConnections checks that callers find the errors that package net returns.
func TestErrorsOfConnections(t *testing.T) {
	t.Parallel()
	client, server := pair(t)
	read := func() error {
		_, err := client.Read(make([]byte, 1))
		return err
	}
	require.NoError(t, client.SetReadDeadline(time.Unix(1, 0)))
	err := read()
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	var timeout net.Error
	require.ErrorAs(t, err, &timeout)
	require.True(t, timeout.Timeout())
	require.ErrorContains(t, err, "read tcp "+client.LocalAddr().String()+"->"+server.LocalAddr().String())
	require.NoError(t, client.SetReadDeadline(time.Time{}))

	require.NoError(t, unread(t, client, server))
	require.NoError(t, server.Close()) // resets it
	require.ErrorIs(t, read(), syscall.ECONNRESET)
	require.NoError(t, client.Close())
	require.ErrorIs(t, read(), net.ErrClosed)
	_, err = client.Write([]byte("x"))
	require.ErrorIs(t, err, net.ErrClosed)
}

// unread leaves data at server that it has not read, so that its close resets the connection.
func unread(t *testing.T, client, server net.Conn) error {
	t.Helper()
	_, err := client.Write([]byte("xy"))
	if err == nil {
		_, err = io.ReadFull(server, make([]byte, 1))
	}
	return err
}

func TestConnectionsCloseTheirWritingSide(t *testing.T) {
	t.Parallel()
	client, server := pair(t)
	closer, ok := server.(interface{ CloseWrite() error })
	require.True(t, ok)
	_, err := server.Write([]byte("response"))
	require.NoError(t, err)
	require.NoError(t, closer.CloseWrite())
	got, err := io.ReadAll(client)
	require.NoError(t, err)
	require.Equal(t, "response", string(got))
	_, err = client.Write([]byte("x"))
	require.NoError(t, err)
	_, err = io.ReadFull(server, make([]byte, 1))
	require.NoError(t, err)
}

func TestOnlySocketsAreRaw(t *testing.T) {
	t.Parallel()
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	require.Equal(t, a, rawio.NewConn(a))
}
