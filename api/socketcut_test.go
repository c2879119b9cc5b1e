package api_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/overwinter-dev/overwinter/api"
	"github.com/overwinter-dev/overwinter/internal/eventlog"
	"github.com/overwinter-dev/overwinter/internal/postgres/postgrestest"
	"github.com/overwinter-dev/overwinter/internal/presence"
)

// cutter is a proxy that cuts each connection after some bytes.
type cutter struct {
	address string
	target  atomic.Pointer[string]
	cuts    atomic.Int64
}

func newCutter(t *testing.T, least, most int64) *cutter {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	c := &cutter{address: ln.Addr().String()}
	var all errgroup.Group
	all.Go(func() error {
		for {
			client, err := ln.Accept()
			if err != nil {
				return nil //nolint:nilerr // the test is over
			}
			all.Go(func() error {
				defer client.Close()
				server, err := net.Dial("tcp", *c.target.Load())
				if err != nil {
					return nil // the api restarts
				}
				defer server.Close()
				all.Go(func() error {
					_, _ = io.Copy(server, client)
					return server.Close()
				})
				if n, _ := io.CopyN(client, server, least+rand.Int64N(most-least)); n >= least {
					c.cuts.Add(1)
				}
				return nil
			})
		}
	})
	t.Cleanup(func() {
		_ = ln.Close()
		_ = all.Wait() // errors of cut connections
	})
	return c
}

// follow reads a session's messages after a position until last, over any number of connections,
// and checks that each arrives once and in order.
func (c *cutter) follow(ctx context.Context, id, query string, options *websocket.DialOptions, last int64) (map[int64]string, error) {
	got := map[int64]string{}
	var at int64
	connect := func() error {
		conn, _, err := websocket.Dial(ctx, fmt.Sprintf("ws://%s/api/sessions/%s/ws?after=%d%s", c.address, id, at, query), options) //nolint:bodyclose // the library has closed it
		if err != nil {
			return nil // the message is sent again
		}
		defer func() { _ = conn.CloseNow() }()
		conn.SetReadLimit(1 << 20)
		for at < last {
			_, data, err := conn.Read(ctx)
			if err != nil {
				return nil
			}
			var m struct {
				Type string
				Seq  int64
			}
			if json.Unmarshal(data, &m) != nil {
				return nil // the client's library returns a truncated message if the connection was cut after the header of its frame
			}
			if m.Type == "init" || m.Seq == 0 {
				continue
			}
			if m.Seq != at+1 {
				return fmt.Errorf("after %d came %s", at, data)
			}
			at = m.Seq
			got[at] = string(data)
		}
		return nil
	}
	for at < last {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("at %d of %d: %w", at, last, err)
		}
		if err := connect(); err != nil {
			return nil, err
		}
	}
	return got, nil
}

// Two clients follow a session through a proxy that cuts their connections, while events are appended and the api is
// restarted.
func TestPostgresTwoSocketsAgreeAcrossDisconnectsAndRestarts(t *testing.T) {
	t.Parallel()
	url := postgrestest.URL(t)
	first, db := setupPostgresAt(t, url)
	id := first.do("POST", "/api/sessions", `{"agent":"demo"}`).session().ID
	proxy := newCutter(t, 1<<10, 30<<10)
	point := func(b *harness) { proxy.target.Store(new(strings.TrimPrefix(b.url, "http://"))) }
	point(first)

	const total = 3000
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	var clients errgroup.Group
	var got [2]map[int64]string
	for i := range got {
		clients.Go(func() (err error) {
			got[i], err = proxy.follow(ctx, id, "", nil, total)
			return err
		})
	}
	current := first
	for n := 0; n < total; n += 10 {
		add := eventlog.Append{SessionID: id}
		for i := range 10 {
			data := json.RawMessage(fmt.Sprintf(`{"blockId":"b","delta":"%d %s"}`, n+i+1, strings.Repeat("x", rand.IntN(200))))
			add.Events = append(add.Events, eventlog.Draft{Type: "text_delta", ConversationID: "main", At: time.Now(), Data: data})
		}
		verdicts, err := db.EventsAppend(ctx, []eventlog.Append{add})
		require.NoError(t, err)
		require.NoError(t, verdicts[0])
		if n%500 == 490 {
			next, _ := setupPostgresAt(t, url)
			point(next)
			require.NoError(t, current.stop())
			current = next
		}
	}
	require.NoError(t, clients.Wait())
	require.Equal(t, got[0], got[1])
	for seq := int64(1); seq <= total; seq++ {
		require.Contains(t, got[0][seq], fmt.Sprintf(`"content":"%d `, seq))
	}
	require.Greater(t, proxy.cuts.Load(), int64(20))
}

// Users of one api are known to another api. Users of a lost api stay present until they expire.
func TestPostgresUsersAreKnownAtAllServers(t *testing.T) {
	t.Parallel()
	url := postgrestest.URL(t)
	one, db := setupPostgresAt(t, url, api.ReadPresence(5*time.Millisecond))
	two, _ := setupPostgresAt(t, url, api.ReadPresence(5*time.Millisecond))
	id := one.do("POST", "/api/sessions", `{"agent":"demo"}`).session().ID
	path := "/api/sessions/" + id + "/ws"
	ada := one.socket(path + "?userId=ada")
	require.Equal(t, []string{"init", "caught_up"}, ada.brief(2))
	bob := two.socket(path + "?userId=bob")
	require.Contains(t, string(bob.next().Data), `"connectedClients":2,"connectedUsers":[{"userId":"ada","name":"ada"},{"userId":"bob","name":"bob"}]`)
	joined := ada.next()
	require.Equal(t, "user.joined", joined.Type)
	require.Contains(t, string(joined.Data), "bob")
	lost := presence.Viewer{Client: "lost", SessionID: id, User: presence.User{ID: "eve", Name: "Eve"}}
	require.NoError(t, db.PresenceRenew(t.Context(), []presence.Viewer{lost}, time.Hour))
	joined = ada.next()
	require.Equal(t, "user.joined", joined.Type)
	require.Contains(t, string(joined.Data), "Eve")
	require.NoError(t, db.PresenceRenew(t.Context(), []presence.Viewer{lost}, time.Microsecond))
	left := ada.next()
	require.Equal(t, "user.left", left.Type)
	require.Contains(t, string(left.Data), "Eve")
	require.NoError(t, two.stop())
	left = ada.next()
	require.Equal(t, "user.left", left.Type)
	require.Contains(t, string(left.Data), "bob")
	require.NoError(t, one.stop())
	present, err := db.PresenceRead(t.Context(), []string{id})
	require.NoError(t, err)
	require.Empty(t, present, "an api that stops takes its clients with it")
}

func TestPostgresSocketReportsChangedSessions(t *testing.T) {
	t.Parallel()
	b, db := setupPostgresAt(t, postgrestest.URL(t), api.ReadPresence(5*time.Millisecond))
	s := b.socket("/api/ws")
	changed := string(s.next().Data)
	require.Contains(t, changed, `"all":true`)
	var ids []string
	for strings.Contains(changed, `"all":true`) { // until the server knows its read position
		ids = append(ids, b.do("POST", "/api/sessions", `{"agent":"demo"}`).session().ID)
		_, err := db.LifecycleNumber(t.Context())
		require.NoError(t, err)
		changed = string(s.next().Data)
	}
	var named struct{ SessionIDs []string }
	require.NoError(t, json.Unmarshal([]byte(changed), &named))
	require.NotEmpty(t, named.SessionIDs)
	require.Subset(t, ids, named.SessionIDs)
}
