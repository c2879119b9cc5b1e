package api_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/api"
	"github.com/overwinter-dev/overwinter/internal/eventlog"
	"github.com/overwinter-dev/overwinter/internal/feed"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// polled returns a short description of a page of events.
func (b *harness) polled(id, query string) string {
	b.t.Helper()
	a := b.do("GET", "/api/sessions/"+id+"/events"+query, "", "Accept", "application/json;q=1, text/plain")
	require.Equal(b.t, http.StatusOK, a.status, "%s", a.body)
	require.Equal(b.t, "Accept", a.header.Get("Vary"))
	var page struct {
		Items           []struct{ Seq int64 }
		After           int64
		CaughtUp, Ended bool
	}
	a.into(&page)
	text := ""
	for _, e := range page.Items {
		text += fmt.Sprint(e.Seq, " ")
	}
	text += fmt.Sprintf("after %d", page.After)
	if page.CaughtUp {
		text += " caught up"
	}
	if page.Ended {
		text += " ended"
	}
	return text
}

func TestEventsAreReadInPages(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.store.Put(session.Running)
	require.Equal(t, "after 0 caught up", b.polled(id, ""))
	for range 8 {
		b.store.Text(id, "x\n\ny")
	}
	require.Equal(t, "1 2 3 4 5 6 7 8 after 8 caught up", b.polled(id, ""))
	require.Equal(t, "1 2 3 4 after 4", b.polled(id, "?limit=4"))
	require.Equal(t, "5 6 7 8 after 8 caught up", b.polled(id, "?limit=4&after=4"), "a full page may have everything")
	require.Equal(t, "after 8 caught up", b.polled(id, "?after=latest"))
	require.Equal(t, "after 8 caught up", b.polled(id, "?after=8&wait=1ms"))
	require.Equal(t, "7 8 after 8 caught up", b.polled(id, "?after=6&wait=1m"), "existing events are returned without waiting")
	b.store.Status(id, session.Terminated)
	require.Equal(t, "9 after 9 caught up ended", b.polled(id, "?after=8&wait=1m"))
	require.Equal(t, "after 9 caught up ended", b.polled(id, "?after=9&wait=1m"))
	require.Equal(t, "8 after 8", b.polled(id, "?after=7&limit=1"))
	b.store.Forget(id, 4)
	b.do("GET", "/api/sessions/"+id+"/events?after=1", "", "Accept", "application/json").problem(http.StatusGone, "position_gone")
	eventually(t, "every reader is closed", func() bool { return b.store.OpenReaders() == 0 })
}

func TestPageOfEventsIsBounded(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.store.Put(session.Running)
	for range 30 {
		b.store.Text(id, strings.Repeat("x", 100<<10))
	}
	require.Equal(t, "1 2 3 4 5 6 7 8 9 10 11 after 11", b.polled(id, ""))
}

func TestPollWaitsForEvents(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.store.Put(session.Running)
	got := make(chan string, 1)
	poll := func(query string) { go func() { got <- b.polled(id, query) }() }
	poll("?wait=1m")
	eventually(t, "the poll waits", func() bool { return b.store.OpenReaders() == 1 })
	b.store.Text(id, "x")
	require.Equal(t, "1 after 1 caught up", <-got)
	poll("?wait=1m&after=1")
	eventually(t, "the poll waits", func() bool { return b.store.OpenReaders() == 1 })
	b.store.Status(id, session.Terminated)
	require.Equal(t, "2 after 2 caught up ended", <-got)
}

// hangingEvents opens readers that return nothing before the context of a read ends.
type hangingEvents struct{}

func (hangingEvents) Follow(context.Context, string, int64) (feed.Reader, error) {
	return hangingEvents{}, nil
}

func (hangingEvents) Next(ctx context.Context, _ <-chan time.Time) (eventlog.Batch, error) {
	<-ctx.Done()
	return eventlog.Batch{}, context.Cause(ctx)
}

func (hangingEvents) Close() {}

// TestReadOfHangingLogIsUnavailable makes Postgres hang when the first events are read.
func TestReadOfHangingLogIsUnavailable(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *api.Config) { c.Events, c.RequestTimeout = hangingEvents{}, 100*time.Millisecond })
	path := "/api/sessions/" + b.store.Put(session.Running)
	for _, read := range []string{"/events", "/events?wait=1m", "/events?after=latest", "/stream", "/stream?offset=now", "/stream?offset=-1&live=long-poll", "/stream?offset=-1&live=sse"} {
		b.do("GET", path+read, "", "Accept", "application/json").problem(http.StatusServiceUnavailable, "unavailable")
	}
	require.Equal(t, http.StatusServiceUnavailable, b.do("HEAD", path+"/stream", "").status)
}

func TestStoppingServerEndsPolls(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.store.Put(session.Running)
	got := make(chan answer, 1)
	go func() { got <- b.do("GET", "/api/sessions/"+id+"/events?wait=1m", "", "Accept", "application/json") }()
	eventually(t, "the poll waits", func() bool { return b.store.OpenReaders() == 1 })
	require.NoError(t, b.stop())
	(<-got).problem(http.StatusServiceUnavailable, "unavailable")
}

func TestWrongPolls(t *testing.T) {
	t.Parallel()
	b := setup(t)
	path := "/api/sessions/" + b.store.Put(session.Running) + "/events"
	for query, field := range map[string]string{
		"?limit=0": "limit", "?limit=1001": "limit", "?limit=x": "limit", "?wait=61s": "wait", "?wait=-1s": "wait", "?wait=20": "wait", "?after=x": "after",
	} {
		p := b.do("GET", path+query, "", "Accept", "application/json").problem(http.StatusBadRequest, "invalid_request")
		require.Equal(t, field, p.Errors[0].Field, query)
	}
	for _, accept := range []string{"", "*/*", "text/event-stream", "application/json, text/event-stream"} {
		p := b.do("GET", path+"?wait=1s", "", "Accept", accept).problem(http.StatusBadRequest, "invalid_request")
		require.Equal(t, "wait", p.Errors[0].Field)
		require.Contains(t, p.Detail, "Accept: application/json")
	}
}
