package test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/test/web"
)

// TestWebClient makes the packages of web/ use a system whose connections are cut and whose api
// is killed.
func TestWebClient(t *testing.T) {
	t.Parallel()
	tree := web.Build(t, "../web")
	s := startStack(t)
	direct := "http://" + s.api

	out := tree.Node(t, []string{"OVERWINTER_API_URL=" + direct}, "test/out/examples/ask.js")
	require.Contains(t, out, "Hello there.")
	require.Contains(t, out, "Good bye.")
	require.Contains(t, out, "The prompt is completed.")

	for _, transport := range transports {
		address, stop := cutting(t, s)
		t.Log(tree.Node(t, append(transportEnv(transport), "OVERWINTER_API_URL=http://"+address, "OVERWINTER_DIRECT_URL="+direct), "test/out/live/follow.js"))
		stop()
	}
}

// transports are the transports with which the client follows sessions.
var transports = []string{"sse", "websocket"}

// transportEnv returns the environment of a script that uses a transport. Node before 22 provides
// WebSocket only with an option.
func transportEnv(transport string) []string {
	return []string{"TRANSPORT=" + transport, "NODE_OPTIONS=--experimental-websocket"}
}

// TestReactLibrary renders the example of the documents with a live system, in jsdom with both versions of React and in a browser.
func TestReactLibrary(t *testing.T) {
	t.Parallel()
	tree := web.Build(t, "../web")
	s := startStack(t)
	at := []string{"OVERWINTER_API_URL=http://" + s.api, "OVERWINTER_DIRECT_URL=http://" + s.api}

	out := tree.Node(t, at, "test/out/live/react.js")
	require.Contains(t, out, "React 19.")
	t.Log(out)
	tree.Run(t, nil, "esbuild", "test/out/live/react.js", "--bundle", "--platform=node", "--format=esm", "--external:jsdom",
		"--alias:react=react-18", "--alias:react-dom=react-dom-18", "--log-level=warning", "--outfile=test/out/react-18.mjs",
		"--banner:js=import { createRequire } from 'node:module'; const require = createRequire(import.meta.url);")
	out = tree.Node(t, at, "test/out/react-18.mjs")
	require.Contains(t, out, "React 18.")
	t.Log(out)

	browser, none := tree.Browser(t)
	if none != "" {
		t.Skip("everything but the browser: ", none)
	}
	tree.Run(t, nil, "esbuild", "test/out/live/page.js", "--bundle", "--format=esm", "--log-level=warning", "--outfile=test/out/page.js")
	for _, transport := range transports {
		env := append(append(transportEnv(transport), browser...), "OVERWINTER_PAGE=test/out/page.js", fmt.Sprintf("OVERWINTER_API_PID=%d", s.child(t, "overwinter api")))
		t.Log(tree.Node(t, append(env, at...), "test/out/live/browser.js"))
	}
}

// cutting returns the address of a proxy to the api that resets all connections until it is
// stopped: about three times a second at first, and with growing pauses, because on a loaded
// machine no request might complete within the first ones. The api itself is killed after four
// seconds; its supervisor restarts it.
func cutting(t *testing.T, s *stack) (address string, stop func()) {
	t.Helper()
	p := newProxy(t, func() (net.Conn, error) { return net.Dial("tcp", s.api) })
	api := s.child(t, "overwinter api")
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	running.Go(func() {
		kill := time.After(4 * time.Second)
		for scale := 1.0; ; {
			select {
			case <-ctx.Done():
				return
			case <-kill:
				syscall.Kill(api, syscall.SIGKILL) //nolint:errcheck // the test fails if it does not run
			case <-time.After(time.Duration(scale * float64(50*time.Millisecond+rand.N(600*time.Millisecond)))):
				p.reset()
				scale *= 1.05
			}
		}
	})
	stop = func() { cancel(); running.Wait() }
	t.Cleanup(stop)
	return p.address, stop
}
