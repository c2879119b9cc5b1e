package localmodal_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	pb "github.com/modal-labs/modal-client/go/proto/modal_proto"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
)

// recordedConn records what arrives, and calls ended at its end.
type recordedConn struct {
	net.Conn
	received *bytes.Buffer
	ended    func()
}

func (c recordedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.received.Write(p[:n])
	if err != nil {
		c.ended()
	}
	return n, err
}

// TestServerDoesNotPingForMessages checks that the server does not answer messages with pings. Each
// ping costs both sides a write and a read.
func TestServerDoesNotPingForMessages(t *testing.T) {
	t.Parallel()
	s := setup(t)
	var received bytes.Buffer // to be read after the end
	end := make(chan struct{})
	ended := sync.OnceFunc(func() { close(end) })
	conn, err := grpc.NewClient("passthrough:"+strings.TrimPrefix(s.server.URL(), "http://"),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			c, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
			return recordedConn{c, &received, ended}, err
		}))
	require.NoError(t, err)
	const calls = 10
	for range calls {
		_, err = pb.NewModalClientClient(conn).AppList(s.ctx, &pb.AppListRequest{})
		require.Equal(t, codes.Unauthenticated, status.Code(err))
	}
	require.NoError(t, conn.Close())
	<-end
	kinds := map[http2.FrameType]int{}
	for framer := http2.NewFramer(io.Discard, &received); ; {
		f, err := framer.ReadFrame()
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			break
		}
		require.NoError(t, err)
		kinds[f.Header().Type]++
	}
	require.GreaterOrEqual(t, kinds[http2.FrameHeaders], calls)
	require.Zero(t, kinds[http2.FramePing], kinds)
}
