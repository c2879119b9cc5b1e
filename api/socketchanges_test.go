package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/api"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/lifecycle"
	"github.com/overwinter-dev/overwinter/internal/session"
)

func TestSocketReportsPresence(t *testing.T) {
	t.Parallel()
	b := setup(t, api.ReadPresence(5*time.Millisecond))
	id := b.store.Put(session.Running)
	path := "/api/sessions/" + id + "/ws"
	ada := b.socket(path + "?userId=ada&name=Ada%20L.")
	require.Contains(t, string(ada.next().Data), `"connectedClients":1,"connectedUsers":[{"userId":"ada","name":"Ada L."}]`)
	require.Equal(t, []string{"caught_up"}, ada.brief(1))
	bob := b.socket(path + "?userId=bob")
	require.Contains(t, string(bob.next().Data), `"connectedClients":2,"connectedUsers":[{"userId":"ada","name":"Ada L."},{"userId":"bob","name":"bob"}]`)
	m := ada.next()
	require.Equal(t, "user.joined", m.Type)
	require.Contains(t, string(m.Data), `"user":{"userId":"bob","name":"bob"},"connectedClients":2`)
	again := b.socket(path + "?userId=bob")
	require.Contains(t, string(again.next().Data), `"connectedClients":3`)
	silent := b.socket(path)
	require.Contains(t, string(silent.next().Data), `"connectedClients":4`)
	require.NoError(t, bob.conn.Close(websocket.StatusNormalClosure, ""))
	require.NoError(t, silent.conn.Close(websocket.StatusNormalClosure, ""))
	require.NoError(t, again.conn.Close(websocket.StatusNormalClosure, ""))
	m = ada.next()
	require.Equal(t, "user.left", m.Type, "%s", m.Data)
	require.Contains(t, string(m.Data), `"user":{"userId":"bob","name":"bob"}`)
	for _, query := range []string{"?name=x", "?userId=a%20b", "?userId=" + strings.Repeat("x", 129), "?userId=a&name=" + strings.Repeat("x", 201), "?userId=a&name=%07"} {
		b.refused(path+query, http.StatusBadRequest, "invalid_request", nil)
	}
	b.store.Fail("PresenceRenew", failure.Errorf(failure.Unavailable, "down"))
	b.store.Fail("PresenceRead", failure.Errorf(failure.Unavailable, "down"))
	eve := b.socket(path + "?userId=eve")
	require.Contains(t, string(eve.next().Data), `{"userId":"eve","name":"eve"}`, "presence refuses no client")
	require.Equal(t, []string{"caught_up"}, eve.brief(1))
}

func TestSocketReportsChangedSessions(t *testing.T) {
	t.Parallel()
	b := setup(t, api.ReadPresence(5*time.Millisecond))
	s := b.socket("/api/ws")
	happened := func(ids ...string) {
		for _, id := range ids {
			b.store.Happened(lifecycle.Event{Type: lifecycle.SessionRunning, Session: lifecycle.Subject{ID: id}})
		}
	}
	type changes struct {
		SessionIDs []string
		All        bool
	}
	changed := func() (c changes) {
		m := s.next()
		require.Equal(t, "sessions:changed", m.Type)
		require.NoError(t, json.Unmarshal(m.Data, &c))
		return c
	}
	c := changed()
	require.True(t, c.All)
	for !slices.Contains(c.SessionIDs, "ses_0") { // until the server knows its read position
		happened("ses_0")
		c = changed()
	}
	away := func(err error) { b.store.Fail("LifecycleRead", err) }
	away(failure.Errorf(failure.Unavailable, "down"))
	happened("ses_b", "ses_a", "ses_b")
	away(nil)
	for c = changed(); !slices.Contains(c.SessionIDs, "ses_a"); c = changed() {
		require.Equal(t, []string{"ses_0"}, c.SessionIDs, "what was on its way")
	}
	require.Subset(t, c.SessionIDs, []string{"ses_a", "ses_b"})
	require.LessOrEqual(t, len(c.SessionIDs), 3)
	require.False(t, c.All)
	away(failure.Errorf(failure.Unavailable, "down"))
	for i := range 1200 {
		happened(fmt.Sprint(i))
	}
	away(nil)
	for !c.All {
		c = changed()
		require.LessOrEqual(t, len(c.SessionIDs), 100)
	}
	require.Equal(t, "pong", func() string {
		s.send(`{"type":"ping"}`)
		for {
			if m := s.next(); m.Type != "sessions:changed" {
				return m.Type
			}
		}
	}())
	c.All = false
	b.store.Fail("LifecycleRead", failure.Errorf(failure.PositionGone, "gone"))
	for !c.All {
		c = changed()
	}
	b.store.Fail("LifecycleRead", nil)
	for c.SessionIDs = nil; !slices.Contains(c.SessionIDs, "ses_c"); c = changed() { // until the server knows its read position again
		happened("ses_c")
	}
	code, message, _ := s.refusal(`{"type":"prompt","content":"hi"}`)
	require.Equal(t, "invalid_request", code)
	require.Contains(t, message, "type must be ping")
	b.refused("/api/ws", http.StatusForbidden, "forbidden", http.Header{"Origin": {"https://evil.example"}})
	b.refused("/api/ws?x=1", http.StatusBadRequest, "invalid_request", nil)
	stopped := make(chan error, 1)
	go func() { stopped <- b.stop() }()
	require.Equal(t, websocket.StatusGoingAway, s.closed())
	require.NoError(t, <-stopped)
}
