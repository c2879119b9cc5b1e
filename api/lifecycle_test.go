package api_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/api"
	"github.com/overwinter-dev/overwinter/internal/lifecycle"
	"github.com/overwinter-dev/overwinter/internal/postgres/postgrestest"
	"github.com/overwinter-dev/overwinter/internal/session"
)

const (
	oneID = "ses_0123456789abcdef0123456789abcde1"
	twoID = "ses_0123456789abcdef0123456789abcde2"
)

// happened adds an event of a session to the fake.
func (b *harness) happened(t lifecycle.Type, id string) {
	agent, metadata := "demo", `{"team":"blue","n":1}`
	if id == twoID {
		agent, metadata = "other", ``
	}
	b.store.Happened(lifecycle.Event{Type: t, At: time.Now(), Seq: 3, Data: json.RawMessage(`{"x":1}`), Session: lifecycle.Subject{
		ID: id, Agent: agent, Title: "T", Status: session.Running, Metadata: json.RawMessage(metadata),
	}})
}

// lifecycles reads n frames of a stream and returns each as "id event". It omits heartbeats.
func (s *sse) lifecycles(n int) (out []string) {
	s.t.Helper()
	for len(out) < n {
		f, ok := s.next()
		require.True(s.t, ok, "the stream ended after %v", out)
		if f.comment == "" {
			out = append(out, f.id+" "+f.event)
		}
	}
	return out
}

func TestLifecycleEventsAreStreamed(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *api.Config) { c.LifecyclePoll = 5 * time.Millisecond })
	b.happened(lifecycle.SessionCreated, oneID)
	b.happened(lifecycle.SessionRunning, oneID)
	live := b.stream("/api/events")
	require.Equal(t, []string{"2 caught_up"}, live.lifecycles(1))
	all := b.stream("/api/events?after=0")
	require.Equal(t, []string{"1 session.created", "2 session.running", "2 caught_up"}, all.lifecycles(3))
	b.happened(lifecycle.SessionIdle, twoID)
	require.Equal(t, []string{"3 session.idle"}, live.lifecycles(1))
	f := frame{}
	for f.event == "" {
		f, _ = all.next()
	}
	var e map[string]any
	require.NoError(t, json.Unmarshal([]byte(f.data), &e))
	doc, _ := specification()
	require.NoError(t, doc.Components.Schemas["LifecycleEvent"].Value.VisitJSON(e))
	require.Equal(t, map[string]any{"id": twoID, "agent": "other", "title": "T", "status": "running", "metadata": map[string]any{}}, e["session"])
	for range 250 { // pages
		b.happened(lifecycle.PromptCompleted, oneID)
	}
	want := []string{}
	for i := range 250 {
		want = append(want, fmt.Sprintf("%d prompt.completed", i+4))
	}
	require.Equal(t, want, live.lifecycles(250))
	require.Equal(t, want[240:], b.stream("/api/events", "Last-Event-ID", "243").lifecycles(10))

	b.store.ForgetLifecycle(100)
	p := b.do("GET", "/api/events?after=99", "").problem(http.StatusGone, "position_gone")
	require.Contains(t, p.Detail, "continue after 100")
	require.Equal(t, []string{"101 prompt.completed"}, b.stream("/api/events?after=oldest").lifecycles(1))
	require.Contains(t, b.do("GET", "/api/events?after=254", "").problem(http.StatusBadRequest, "invalid_request").Detail, "newest event is 253")
	require.NoError(t, b.stop())
}

func TestLifecycleEventsAreFiltered(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *api.Config) { c.LifecyclePoll, c.Heartbeat = 5*time.Millisecond, 20*time.Millisecond })
	streams := map[string]*sse{}
	for query, want := range map[string][]string{
		"type=session.idle,prompt.failed":   {"2 prompt.failed", "4 session.idle"},
		"agent=other":                       {"3 session.running", "4 session.idle"},
		"sessionId=" + oneID:                {"1 session.created", "2 prompt.failed"},
		"metadata[team]=blue":               {"1 session.created", "2 prompt.failed"},
		"metadata[team]=red":                {},
		"agent=other&type=session.idle":     {"4 session.idle"},
		"agent=demo&metadata%5Bteam%5D=red": {},
	} {
		s := b.stream("/api/events?after=0&" + query)
		require.Equal(t, []string{"0 caught_up"}, s.lifecycles(1))
		streams[strings.Join(append([]string{query}, want...), "|")] = s
	}
	b.happened(lifecycle.SessionCreated, oneID)
	b.happened(lifecycle.PromptFailed, oneID)
	b.happened(lifecycle.SessionRunning, twoID)
	b.happened(lifecycle.SessionIdle, twoID)
	for query, s := range streams {
		query, want, _ := strings.Cut(query, "|")
		got, position := []string{}, ""
		for position != "4" { // a heartbeat moves the position past excluded events
			f, ok := s.next()
			require.True(t, ok)
			if position = f.id; f.comment == "" {
				got, position = append(got, f.id+" "+f.event), ""
			}
		}
		require.Equal(t, want, strings.Join(got, "|"), query)
		old := b.stream("/api/events?after=0&" + query)
		require.Equal(t, want, strings.Join(old.lifecycles(len(got)), "|"), "%s, from the store", query)
	}
	for query, field := range map[string]string{"type=x": "type", "type=session.idle,": "type", "sessionId=x": "sessionId", "after=x": "after", "after=": "after"} {
		p := b.do("GET", "/api/events?"+query, "").problem(http.StatusBadRequest, "invalid_request")
		require.Equal(t, field, p.Errors[0].Field)
	}
}

func TestManyStreamsOfLifecycleEventsReadOnce(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *api.Config) { c.LifecyclePoll = 5 * time.Millisecond })
	var streams []*sse
	for range 20 {
		s := b.stream("/api/events")
		require.Equal(t, []string{"0 caught_up"}, s.lifecycles(1))
		streams = append(streams, s)
	}
	b.happened(lifecycle.SessionIdle, oneID)
	for _, s := range streams {
		require.Equal(t, []string{"1 session.idle"}, s.lifecycles(1))
		require.NoError(t, s.resp.Body.Close())
	}
	reads := 0
	eventually(t, "nothing is read without streams", func() bool {
		before := reads
		reads = b.store.LifecycleReads()
		return reads == before
	})
}

// TestPostgresLifecycleEventsAreReadOnce checks that streams of two apis that reconnect at random
// have the same events in the same order, none twice and none missing, while transactions commit in
// a different order than they wrote.
func TestPostgresLifecycleEventsAreReadOnce(t *testing.T) {
	t.Parallel()
	url := postgrestest.URL(t)
	one, db := setupPostgresAt(t, url)
	two, _ := setupPostgresAt(t, url)
	const writers, each = 6, 30
	made := one.do("POST", "/api/sessions", `{"agent":"demo"}`).session().ID

	var writing sync.WaitGroup
	for w := range writers {
		conn, err := pgx.Connect(t.Context(), url)
		require.NoError(t, err)
		writing.Go(func() {
			defer conn.Close(context.WithoutCancel(t.Context()))
			for i := range each {
				err := pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
					_, err := tx.Exec(t.Context(), `INSERT INTO lifecycle_events (session_no, seq, type, at)
						SELECT no, 0, 'session.running', now() FROM sessions WHERE id = $1`, made)
					if err != nil {
						return err
					}
					_, err = tx.Exec(t.Context(), `SELECT pg_sleep($1)`, float64((w*7+i*13)%10)/200) // other transactions commit in the meantime
					return err
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	const total = 1 + writers*each
	read := func(b *harness, cut int) (got []string) {
		last := "0"
		for len(got) < total {
			s := b.stream("/api/events", "Last-Event-ID", last)
			for n := 0; n < cut && len(got) < total; n++ {
				f, ok := s.next()
				if !ok {
					break
				}
				if f.id != "" {
					last = f.id
				}
				if strings.HasPrefix(f.event, "session.") {
					got = append(got, f.id+" "+f.event)
				}
			}
			s.resp.Body.Close()
		}
		return got
	}
	var results [3][]string
	var reading sync.WaitGroup
	reading.Go(func() { results[0] = read(one, 7) })
	reading.Go(func() { results[1] = read(two, 11) })
	reading.Go(func() { results[2] = read(two, 1000) })
	reading.Wait()
	writing.Wait()
	require.Equal(t, results[0], results[1])
	require.Equal(t, results[0], results[2])
	page, err := db.LifecycleRead(t.Context(), 0, lifecycle.Filter{}, 1000)
	require.NoError(t, err)
	require.True(t, page.CaughtUp)
	var want []string
	for _, e := range page.Events {
		want = append(want, fmt.Sprintf("%d %s", e.Position, e.Type))
	}
	require.Equal(t, want, results[0])
	require.Len(t, want, total)
}
