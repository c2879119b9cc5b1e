package api_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/api"
	"github.com/overwinter-dev/overwinter/api/apitest"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// seqs returns the positions of the events of an answer.
func (a answer) seqs() []int64 {
	a.t.Helper()
	require.Equal(a.t, http.StatusOK, a.status, "%s", a.body)
	require.Equal(a.t, "application/json", a.header.Get("Content-Type"))
	var events []struct{ Seq int64 }
	a.into(&events)
	seqs := []int64{}
	for _, e := range events {
		seqs = append(seqs, e.Seq)
	}
	return seqs
}

// position returns the headers of a response: the next offset, and whether the stream is up to date
// and closed.
func (a answer) position() string {
	said := a.header.Get("Stream-Next-Offset")
	if a.header.Get("Stream-Up-To-Date") == "true" {
		said += " up-to-date"
	}
	if a.header.Get("Stream-Closed") == "true" {
		said += " closed"
	}
	return said
}

func TestDurableStreamIsReadByOffset(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.store.Put(session.Running)
	path := "/api/sessions/" + id + "/stream"
	empty := b.do("GET", path, "")
	require.Empty(t, empty.seqs())
	require.Equal(t, "0000000000000000 up-to-date", empty.position())
	for range 5 {
		b.store.Text(id, "a\n\nb")
	}
	all := b.do("GET", path+"?unknown=is+ignored", "")
	require.Equal(t, []int64{1, 2, 3, 4, 5}, all.seqs())
	require.Equal(t, "0000000000000005 up-to-date", all.position())
	require.Equal(t, "no-store", all.header.Get("Cache-Control"))
	require.Equal(t, "nosniff", all.header.Get("X-Content-Type-Options"))
	require.Equal(t, "same-origin", all.header.Get("Cross-Origin-Resource-Policy"))
	require.Equal(t, []int64{4, 5}, b.do("GET", path+"?offset=0000000000000003", "").seqs())
	require.Equal(t, []int64{1, 2, 3, 4, 5}, b.do("GET", path+"?offset=-1", "").seqs())
	now := b.do("GET", path+"?offset=now", "")
	require.Empty(t, now.seqs())
	require.Equal(t, "0000000000000005 up-to-date", now.position())
	require.Empty(t, now.header.Get("ETag"))

	head := b.do("HEAD", path+"?offset=0000000000000001", "")
	require.Equal(t, "0000000000000005", head.position())
	require.Equal(t, "application/json", head.header.Get("Content-Type"))

	tag := all.header.Get("ETag")
	same := b.do("GET", path, "", "If-None-Match", `"x", `+tag)
	require.Equal(t, http.StatusNotModified, same.status)
	require.Empty(t, same.body)
	b.store.Text(id, "more")
	require.Len(t, b.do("GET", path, "", "If-None-Match", tag).seqs(), 6)
	eventually(t, "every reader is closed", func() bool { return b.store.OpenReaders() == 0 })
}

func TestDurableStreamIsReadInChunks(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.store.Put(session.Running)
	for range 20 {
		b.store.Text(id, strings.Repeat("x", 100<<10))
	}
	path := "/api/sessions/" + id + "/stream"
	var seqs []int64
	answers := 0
	for offset, done := "-1", false; !done; answers++ {
		a := b.do("GET", path+"?offset="+offset, "")
		require.Less(t, len(a.body), 700<<10)
		seqs = append(seqs, a.seqs()...)
		require.Less(t, offset, a.header.Get("Stream-Next-Offset"), "offsets sort as text")
		offset, done = a.header.Get("Stream-Next-Offset"), a.header.Get("Stream-Up-To-Date") == "true"
	}
	require.Len(t, seqs, 20)
	require.IsIncreasing(t, seqs)
	require.Greater(t, answers, 3)
}

func TestDurableStreamIsClosedWithItsSession(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.store.Put(session.Running)
	b.store.Text(id, "x")
	path := "/api/sessions/" + id + "/stream"
	open := b.do("GET", path, "")
	b.store.Status(id, session.Terminated)
	closed := b.do("GET", path, "", "If-None-Match", open.header.Get("ETag"))
	require.Equal(t, []int64{1, 2}, closed.seqs())
	require.Equal(t, "0000000000000002 up-to-date closed", closed.position())
	require.Equal(t, "0000000000000002 closed", b.do("HEAD", path, "").position())
	require.Equal(t, "0000000000000002 up-to-date closed", b.do("GET", path+"?offset=now", "").position())
	poll := b.do("GET", path+"?offset=0000000000000002&live=long-poll", "")
	require.Equal(t, http.StatusNoContent, poll.status)
	require.Equal(t, "0000000000000002 up-to-date closed", poll.position())
	s := b.stream(path + "?offset=now&live=sse")
	f, _ := s.next()
	require.Equal(t, "control", f.event)
	require.JSONEq(t, `{"streamNextOffset":"0000000000000002","upToDate":true,"streamClosed":true}`, f.data)
	s.ended()
}

func TestDurableStreamIsNotClosedBeforeItsPrompts(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.store.Put(session.Terminated)
	b.store.With(id, func(r *apitest.Row) {
		r.Prompts = []session.Prompt{{ID: "p", SessionID: id, Status: session.PromptProcessing, Ordinal: 1}}
	})
	path := "/api/sessions/" + id + "/stream"
	require.Equal(t, "0000000000000000 up-to-date", b.do("GET", path, "").position())
	s := b.stream(path + "?offset=now&live=sse")
	f, _ := s.next()
	require.NotContains(t, f.data, "streamClosed")
	b.store.Prompt(id, "p", session.PromptCancelled)
	f, _ = s.next()
	require.Equal(t, "data", f.event)
	for !strings.Contains(f.data, "streamClosed") {
		f, _ = s.next()
		require.Contains(t, f.data, `"streamNextOffset":"0000000000000001"`)
	}
	s.ended()
}

func TestLongPollWaitsForEvents(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *api.Config) { c.LongPoll = time.Second })
	id := b.store.Put(session.Running)
	b.store.Text(id, "x")
	path := "/api/sessions/" + id + "/stream?live=long-poll&offset="
	require.Equal(t, []int64{1}, b.do("GET", path+"-1", "").seqs())
	none := b.do("GET", path+"now", "")
	require.Equal(t, http.StatusNoContent, none.status)
	require.Equal(t, "0000000000000001 up-to-date", none.position())
	require.Regexp(t, `^\d+$`, none.header.Get("Stream-Cursor"))

	b = setup(t)
	id = b.store.Put(session.Running)
	answered := make(chan answer, 1)
	go func() { answered <- b.do("GET", "/api/sessions/"+id+"/stream?live=long-poll&offset=now", "") }()
	eventually(t, "the poll waits", func() bool { return b.store.OpenReaders() == 1 })
	b.store.Text(id, "x")
	some := <-answered
	require.Equal(t, []int64{1}, some.seqs())
	require.Equal(t, "0000000000000001 up-to-date", some.position())

	go func() { answered <- b.do("GET", "/api/sessions/"+id+"/stream?live=long-poll&offset=now", "") }()
	eventually(t, "the poll waits", func() bool { return b.store.OpenReaders() == 1 })
	require.NoError(t, b.stop())
	stopped := <-answered
	stopped.problem(http.StatusServiceUnavailable, "unavailable")
}

func TestDurableStreamOfEvents(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *api.Config) { c.Heartbeat = 50 * time.Millisecond })
	id := b.store.Put(session.Running)
	b.store.Text(id, "a\n\nb")
	b.store.Text(id, "c")
	s := b.stream("/api/sessions/" + id + "/stream?offset=-1&live=sse")
	data, _ := s.next()
	require.Equal(t, "data", data.event)
	var events []struct {
		Seq  int64
		Data struct{ Delta string }
	}
	require.NoError(t, json.Unmarshal([]byte(data.data), &events))
	require.Len(t, events, 2)
	require.Equal(t, "a\n\nb", events[0].Data.Delta)
	control := struct {
		StreamNextOffset, StreamCursor string
		UpToDate                       bool
	}{}
	for range 3 { // the second and third are heartbeats
		f, _ := s.next()
		require.Equal(t, "control", f.event)
		require.NoError(t, json.Unmarshal([]byte(f.data), &control))
		require.Equal(t, "0000000000000002", control.StreamNextOffset)
		require.True(t, control.UpToDate)
		require.Regexp(t, `^\d+$`, control.StreamCursor)
	}
}

func TestWrongReadsOfDurableStream(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.store.Put(session.Running)
	for range 6 {
		b.store.Text(id, "x")
	}
	path := "/api/sessions/" + id + "/stream"
	for query, field := range map[string]string{
		"?offset=": "offset", "?offset=1": "offset", "?offset=-2": "offset", "?offset=a,b": "offset", "?offset=NOW": "offset",
		"?offset=-1&offset=-1": "offset", "?live=sse": "offset", "?live=long-poll": "offset", "?offset=now&live=ws": "live",
	} {
		p := b.do("GET", path+query, "").problem(http.StatusBadRequest, "invalid_request")
		require.Equal(t, field, p.Errors[0].Field, query)
	}
	p := b.do("GET", path+"?offset=0000000000000007", "").problem(http.StatusBadRequest, "invalid_request")
	require.Contains(t, p.Detail, "newest event is 6")
	for _, method := range []string{"POST", "PUT", "DELETE", "PATCH"} {
		a := b.do(method, path, "[]")
		a.problem(http.StatusMethodNotAllowed, "method_not_allowed")
		require.ElementsMatch(t, []string{"GET", "HEAD", "OPTIONS"}, strings.Split(a.header.Get("Allow"), ", "))
	}
	b.do("GET", "/api/sessions/ses_0123456789abcdef0123456789abcdef/stream", "").problem(http.StatusNotFound, "session_not_found")

	b.store.Forget(id, 4)
	for _, offset := range []string{"-1", "0000000000000001"} {
		p = b.do("GET", path+"?offset="+offset, "").problem(http.StatusGone, "position_gone")
		require.Contains(t, p.Detail, "offset=0000000000000003", "it names where reading can continue")
	}
	require.Equal(t, []int64{4, 5, 6}, b.do("GET", path+"?offset=0000000000000003", "").seqs())
	eventually(t, "every reader is closed", func() bool { return b.store.OpenReaders() == 0 })
}
