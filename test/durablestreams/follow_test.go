package durablestreams

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/api"
	"github.com/overwinter-dev/overwinter/api/apitest"
	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/eventlog"
	"github.com/overwinter-dev/overwinter/internal/feed"
	"github.com/overwinter-dev/overwinter/internal/postgres"
	"github.com/overwinter-dev/overwinter/internal/postgres/postgrestest"
	"github.com/overwinter-dev/overwinter/internal/session"
)

type agents struct{}

func (agents) Names() []string               { return []string{"demo"} }
func (agents) Describe() []agent.Description { return []agent.Description{{Name: "demo"}} }

// Get returns no adapter, because no archive is imported.
func (agents) Get(string) (agent.Adapter, error) { return nil, errors.ErrUnsupported }

// serve runs an api over a database until stop.
func serve(t *testing.T, db *postgres.DB) (address string, stop func()) {
	t.Helper()
	follower := eventlog.NewFollower(db, eventlog.FollowerOptions{Format: feed.Format()})
	follower.Start()
	server, err := api.New(api.Config{
		Store: db, Signaler: &apitest.Signaler{}, Events: feed.Of(follower), Agents: agents{}, WithoutKey: true,
		LongPoll: 200 * time.Millisecond, ShutdownTimeout: time.Minute,
	})
	require.NoError(t, err)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx, ln) }()
	stop = sync.OnceFunc(func() {
		cancel()
		require.NoError(t, <-done)
		follower.Stop()
	})
	t.Cleanup(stop)
	return ln.Addr().String(), stop
}

// cutter forwards connections to a target and cuts each after a random number of bytes.
type cutter struct {
	target atomic.Pointer[string]
	cuts   atomic.Int64
}

func startCutter(t *testing.T, target string) (*cutter, string) {
	t.Helper()
	c := &cutter{}
	c.target.Store(&target)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var open sync.WaitGroup
	open.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			open.Go(func() { c.forward(conn) })
		}
	})
	t.Cleanup(func() { ln.Close(); open.Wait() })
	return c, ln.Addr().String()
}

func (c *cutter) forward(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", *c.target.Load())
	if err != nil {
		return
	}
	var up sync.WaitGroup
	up.Go(func() {
		_, _ = io.Copy(server, client)
		server.Close()
	})
	if n, _ := io.CopyN(client, server, 300+rand.Int64N(20_000)); n >= 300 {
		c.cuts.Add(1)
	}
	_ = client.(*net.TCPConn).SetLinger(0) // a reset, not an end
	client.Close()
	server.Close()
	up.Wait()
}

// request sends JSON and returns the response.
func request(t *testing.T, method, url, body string) []byte {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	require.NoError(t, err)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Less(t, resp.StatusCode, 300, "%s %s: %s", method, url, text)
	return text
}

// TestClientFollowsLiveSession checks that the protocol's own client gets each event once, in
// order, while connections are cut and its api is replaced by another.
func TestClientFollowsLiveSession(t *testing.T) {
	t.Parallel()
	for _, live := range []string{"long-poll", "sse"} {
		t.Run(live, func(t *testing.T) {
			t.Parallel()
			db := postgrestest.Open(t, postgrestest.URL(t))
			first, stopFirst := serve(t, db)
			second, _ := serve(t, db)
			proxy, through := startCutter(t, first)

			var made struct{ ID string }
			require.NoError(t, json.Unmarshal(request(t, "POST", "http://"+second+"/api/sessions", `{"agent":"demo"}`), &made))
			path := "/api/sessions/" + made.ID
			dir, _ := workspace(t, "follow.mjs")
			cmd := exec.CommandContext(t.Context(), "node", "follow.mjs")
			cmd.Dir = dir
			cmd.Env = append(os.Environ(), "STREAM_URL=http://"+through+path+"/stream", "LIVE="+live)
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			out, err := cmd.StdoutPipe()
			require.NoError(t, err)
			require.NoError(t, cmd.Start())
			lines := bufio.NewScanner(out)
			lines.Buffer(nil, 1<<20)
			next := func() string {
				require.True(t, lines.Scan(), "the client has ended: %s", &stderr)
				return lines.Text()
			}

			const titles = 300
			var got []string
			for i := range titles {
				if i == titles/2 {
					proxy.target.Store(&second)
					stopFirst()
				}
				request(t, "PATCH", "http://"+second+path, fmt.Sprintf(`{"title":"%d %s"}`, i, strings.Repeat("ä", 150)))
				if i%10 == 9 {
					for !strings.Contains(next(), fmt.Sprintf(`"title":"%d `, i)) {
						got = append(got, lines.Text())
					}
					got = append(got, lines.Text())
				}
			}
			require.NoError(t, db.TransitionRecord(t.Context(), session.Transition{
				SessionID: made.ID, No: 1, From: session.Initializing, To: session.Terminated, Event: session.EventStop,
				Reason: session.ReasonRequested, At: time.Now(),
			}))
			for lines.Scan() {
				got = append(got, lines.Text())
			}
			require.NoError(t, cmd.Wait(), "%s", &stderr)

			var want []json.RawMessage
			require.NoError(t, json.Unmarshal(request(t, "GET", "http://"+second+path+"/stream?offset=-1", ""), &want))
			require.Greater(t, len(want), titles)
			require.Len(t, got, len(want), "neither a gap nor a repeat")
			for i := range want {
				require.JSONEq(t, string(want[i]), got[i])
			}
			require.Greater(t, proxy.cuts.Load(), int64(5), "connections were cut")
			t.Logf("%d events, %d cuts, %s", len(got), proxy.cuts.Load(), stderr.String())
		})
	}
}
