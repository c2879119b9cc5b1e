package localmodal

import (
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/test/bufconn"
)

// An hour of the SDK's pings, without an open call, does not end the connection.
func TestPingsDoNotEndConnection(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		listener := bufconn.Listen(64 << 10)
		server := grpc.NewServer(allowPings())
		served := make(chan error, 1)
		go func() { served <- server.Serve(listener) }()
		conn, err := grpc.NewClient("passthrough:local",
			grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }),
			grpc.WithIdleTimeout(0),
			grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 30 * time.Second, Timeout: 10 * time.Second, PermitWithoutStream: true}))
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		conn.Connect()
		for state := conn.GetState(); state != connectivity.Ready; state = conn.GetState() {
			require.True(t, conn.WaitForStateChange(ctx, state), "it does not connect")
		}
		require.False(t, conn.WaitForStateChange(ctx, connectivity.Ready), "the connection has become %v", conn.GetState())
		require.NoError(t, conn.Close())
		server.Stop()
		require.NoError(t, <-served)
	})
}
