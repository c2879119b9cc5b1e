package test

import (
	"context"
	"math/rand/v2"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/test/web"
)

// TestTheWebClient has the packages of web/ use a system whose connections are cut and whose api is killed.
func TestTheWebClient(t *testing.T) {
	t.Parallel()
	tree := web.Build(t, "../web")
	s := startStack(t)
	direct := "http://" + s.api

	out := tree.Node(t, []string{"OVERWINTER_API_URL=" + direct}, "test/out/examples/ask.js")
	require.Contains(t, out, "Hello there.")
	require.Contains(t, out, "Good bye.")
	require.Contains(t, out, "The prompt is completed.")

	address := cutting(t, s)
	t.Log(tree.Node(t, []string{"OVERWINTER_API_URL=http://" + address, "OVERWINTER_DIRECT_URL=" + direct}, "test/out/live/follow.js"))
}

// cutting is the address of a proxy to the api that resets all connections about three times a second until the test ends. The api itself
// is killed after four seconds; its supervisor starts it again.
func cutting(t *testing.T, s *stack) string {
	t.Helper()
	p := newProxy(t, func() (net.Conn, error) { return net.Dial("tcp", s.api) })
	api := s.child(t, "overwinter api")
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	running.Go(func() {
		kill := time.After(4 * time.Second)
		for {
			select {
			case <-ctx.Done():
				return
			case <-kill:
				syscall.Kill(api, syscall.SIGKILL) //nolint:errcheck // the test fails if it does not run
			case <-time.After(50*time.Millisecond + rand.N(600*time.Millisecond)):
				p.reset()
			}
		}
	})
	t.Cleanup(func() { cancel(); running.Wait() })
	return p.address
}
