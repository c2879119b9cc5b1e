package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/stats"

	"github.com/overwinter-dev/overwinter/internal/secret"
)

func TestTemporalConnectionIsPlaintextByDefault(t *testing.T) {
	t.Parallel()
	config, err := temporalFlags{TemporalAddress: "a:1", TemporalNamespace: "n"}.tls()
	require.NoError(t, err)
	require.Nil(t, config)
	for _, f := range []temporalFlags{{TemporalTLS: true}, {TemporalAPIKey: secret.NewValue("k")}, {TemporalServerName: "temporal"}} {
		config, err := f.tls()
		require.NoError(t, err)
		require.NotNil(t, config)
	}
	dir := t.TempDir()
	empty := filepath.Join(dir, "empty.pem")
	require.NoError(t, os.WriteFile(empty, nil, 0o600))
	for _, f := range []temporalFlags{
		{TemporalServerCA: filepath.Join(dir, "none")},
		{TemporalServerCA: empty},
		{TemporalClientCert: empty},
		{TemporalClientCert: empty, TemporalClientKey: empty},
	} {
		_, err := f.dial(slog.New(slog.DiscardHandler), prometheus.NewRegistry())
		require.Error(t, err)
	}
}

// TestTemporalKeyRequiresTLS checks that the client connects over TLS, and that a server with an
// untrusted certificate receives nothing.
func TestTemporalKeyRequiresTLS(t *testing.T) {
	t.Parallel()
	server := httptest.NewUnstartedServer(nil)
	server.StartTLS() // for its certificate
	defer server.Close()
	ca := filepath.Join(t.TempDir(), "ca.pem")
	require.NoError(t, os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600))
	try := func(f temporalFlags) error {
		ln, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: server.TLS.Certificates, NextProtos: []string{"h2"}})
		require.NoError(t, err)
		shaken := make(chan error, 1)
		accepting := make(chan struct{})
		go func() {
			defer close(accepting)
			conn, err := ln.Accept()
			if err != nil {
				shaken <- err
				return
			}
			shaken <- conn.(*tls.Conn).HandshakeContext(t.Context())
			conn.Close()
		}()
		f.TemporalAddress, f.TemporalNamespace, f.TemporalAPIKey = ln.Addr().String(), "default", secret.NewValue("key")
		c, err := f.dial(slog.New(slog.DiscardHandler), prometheus.NewRegistry())
		require.NoError(t, err)
		defer c.Close()
		ctx, cancel := context.WithCancel(t.Context())
		checked := make(chan error, 1)
		go func() {
			_, err := c.CheckHealth(ctx, &client.CheckHealthRequest{})
			checked <- err
		}()
		defer func() {
			ln.Close()
			cancel() // until then the client retries
			<-accepting
			require.Error(t, <-checked, "it is no Temporal")
		}()
		select {
		case err := <-shaken:
			return err
		case <-time.After(eventuallyTimeout):
			return errors.New("no connection came")
		}
	}
	require.NoError(t, try(temporalFlags{TemporalServerCA: ca, TemporalServerName: "example.com"}))
	err := try(temporalFlags{})
	require.Error(t, err)
	var network *net.OpError
	require.ErrorAs(t, err, &network, "the client refuses the certificate")
}

// TestRequestsToTemporalAreNotCompressed checks that small requests are sent uncompressed:
// compression takes a tenth of the CPU time of a turn at either end.
func TestRequestsToTemporalAreNotCompressed(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	seen := &compressions{got: make(chan string, 16)} // more calls than the client makes
	server := grpc.NewServer(grpc.StatsHandler(seen))
	go server.Serve(ln) //nolint:errcheck // it ends with the test
	defer server.Stop()
	c, err := temporalFlags{TemporalAddress: ln.Addr().String(), TemporalNamespace: "default"}.dial(slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	require.NoError(t, err)
	defer c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), eventuallyTimeout)
	defer cancel()
	_, err = c.CheckHealth(ctx, &client.CheckHealthRequest{})
	require.Error(t, err, "it is no Temporal")
	require.Empty(t, <-seen.got)
}

// compressions reports how each request is compressed.
type compressions struct{ got chan string }

func (c *compressions) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

func (c *compressions) HandleRPC(_ context.Context, s stats.RPCStats) {
	if in, ok := s.(*stats.InHeader); ok {
		select {
		case c.got <- in.Compression:
		default: // enough requests were recorded
		}
	}
}

func (c *compressions) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

func (c *compressions) HandleConn(context.Context, stats.ConnStats) {}

// recordingListener records what arrives on its connections.
type recordingListener struct {
	net.Listener
	received chan []byte // of each connection, when it has ended
}

func (l recordingListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	return &recordingConn{Conn: c, received: l.received}, err
}

type recordingConn struct {
	net.Conn
	data     []byte
	received chan []byte
}

func (c *recordingConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.data = append(c.data, p[:n]...)
	if err != nil && c.received != nil {
		c.received <- c.data
		c.received = nil
	}
	return n, err
}

// TestClientDoesNotPingTemporalForResponses checks that responses cause no pings, each of which
// would cost a write, a read, and the same of the server.
func TestClientDoesNotPingTemporalForResponses(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	recording := recordingListener{ln, make(chan []byte, 1)}
	server := grpc.NewServer()
	workflowservice.RegisterWorkflowServiceServer(server, informing{})
	served := make(chan error, 1)
	go func() { served <- server.Serve(recording) }()
	c, err := temporalFlags{TemporalAddress: ln.Addr().String(), TemporalNamespace: "default"}.dial(slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	require.NoError(t, err)
	const calls = 10
	for range calls {
		_, err := c.WorkflowService().GetSystemInfo(t.Context(), &workflowservice.GetSystemInfoRequest{})
		require.NoError(t, err)
	}
	c.Close()
	data := bytes.NewReader(bytes.TrimPrefix(<-recording.received, []byte(http2.ClientPreface)))
	server.Stop()
	require.NoError(t, <-served)
	requests, pings := 0, 0
	for framer := http2.NewFramer(io.Discard, data); ; {
		f, err := framer.ReadFrame()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		switch f := f.(type) {
		case *http2.HeadersFrame:
			requests++
		case *http2.PingFrame:
			if !f.IsAck() { // the server's own pings are acknowledged
				pings++
			}
		}
	}
	require.GreaterOrEqual(t, requests, calls)
	require.Zero(t, pings)
}

// informing is a Temporal that only describes itself.
type informing struct {
	workflowservice.UnimplementedWorkflowServiceServer
}

func (informing) GetSystemInfo(context.Context, *workflowservice.GetSystemInfoRequest) (*workflowservice.GetSystemInfoResponse, error) {
	return &workflowservice.GetSystemInfoResponse{ServerVersion: "1"}, nil
}
