package api_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/api"
	"github.com/overwinter-dev/overwinter/api/apitest"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// sse is one stream that a test reads.
type sse struct {
	t    testing.TB
	resp *http.Response
	scan *bufio.Scanner
}

// frame is one message of a stream. If it is a comment, only that field is set.
type frame struct {
	id, event, data, comment string
}

func (b *harness) stream(path string, headers ...string) *sse {
	b.t.Helper()
	req, err := http.NewRequestWithContext(b.t.Context(), http.MethodGet, b.url+path, nil)
	require.NoError(b.t, err)
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := b.client.Do(req)
	require.NoError(b.t, err)
	require.Equal(b.t, http.StatusOK, resp.StatusCode)
	require.Equal(b.t, "text/event-stream", resp.Header.Get("Content-Type"))
	require.Equal(b.t, "no", resp.Header.Get("X-Accel-Buffering"))
	s := &sse{t: b.t, resp: resp, scan: bufio.NewScanner(resp.Body)}
	s.scan.Buffer(nil, 1<<20)
	b.t.Cleanup(func() { resp.Body.Close() })
	return s
}

// next reads one frame; ok is false when the stream has ended.
func (s *sse) next() (f frame, ok bool) {
	for s.scan.Scan() {
		line := s.scan.Text()
		name, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case line == "":
			return f, true
		case name == "id":
			f.id = value
		case name == "event":
			f.event = value
		case name == "data":
			require.True(s.t, f.data == "" || f.event == "data", "data is one line, except for that of Durable Streams")
			f.data += value
		case name == "":
			f.comment = value
		default:
			s.t.Fatalf("unknown line %q", line)
		}
	}
	return frame{}, false
}

// heartbeats reads up to the nth heartbeat and returns the other frames. On a busy machine, a
// heartbeat may precede any other frame.
func (s *sse) heartbeats(n int) (others []string) {
	s.t.Helper()
	for n > 0 {
		for _, frame := range s.brief(1) {
			if frame == ":heartbeat" {
				n--
			} else {
				others = append(others, frame)
			}
		}
	}
	return others
}

// brief reads n frames and returns each as "id event" or its comment. Markers include their data.
func (s *sse) brief(n int) []string {
	s.t.Helper()
	var out []string
	for range n {
		f, ok := s.next()
		require.True(s.t, ok, "the stream ended after %v", out)
		switch {
		case f.comment != "":
			out = append(out, ":"+f.comment)
		case f.id == "":
			out = append(out, f.event+" "+f.data)
		default:
			var e struct {
				Seq             int64
				Type, SessionID string
				At              string
				Data            json.RawMessage
			}
			require.NoError(s.t, json.Unmarshal([]byte(f.data), &e))
			require.Equal(s.t, f.id, fmt.Sprint(e.Seq))
			require.Equal(s.t, f.event, e.Type)
			require.NotEmpty(s.t, e.SessionID)
			require.Regexp(s.t, `^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$`, e.At)
			require.NotEmpty(s.t, e.Data)
			out = append(out, f.id+" "+f.event)
		}
	}
	return out
}

func (s *sse) ended() {
	s.t.Helper()
	f, ok := s.next()
	require.False(s.t, ok, "unexpected %+v", f)
}

func TestStreamCatchesUpThenFollows(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.store.Put(session.Running)
	for range 5 {
		b.store.Text(id, "a < b & c\n\u2028")
	}
	s := b.stream("/api/sessions/" + id + "/events")
	require.Equal(t, []string{"1 text_delta", "2 text_delta", "3 text_delta", "4 text_delta", "5 text_delta", `caught_up {"seq":5}`}, s.brief(6))
	b.store.Text(id, "live")
	f, ok := s.next()
	require.True(t, ok)
	require.Equal(t, "6", f.id)
	require.Contains(t, f.data, `"data":{"blockId":"b1","delta":"live"}`)
	b.store.Status(id, session.Hibernating)
	require.Equal(t, []string{"7 status"}, s.brief(1), "caught_up comes once")
}

func TestEmptyLogIsCaughtUpAtOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.stream("/api/sessions/" + b.store.Put(session.Initializing) + "/events?after=0")
	require.Equal(t, []string{`caught_up {"seq":0}`}, s.brief(1))
	require.Empty(t, b.temp.TakeCalls(), "reading signals no workflow")
}

func TestStreamResumesAfterItsPosition(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.store.Put(session.Running)
	for range 4 {
		b.store.Text(id, "x")
	}
	path := "/api/sessions/" + id + "/events"
	require.Equal(t, []string{"3 text_delta", "4 text_delta", `caught_up {"seq":4}`}, b.stream(path+"?after=2").brief(3))
	require.Equal(t, []string{"4 text_delta", `caught_up {"seq":4}`}, b.stream(path, "Last-Event-ID", "3").brief(2))
	require.Equal(t, []string{"4 text_delta", `caught_up {"seq":4}`}, b.stream(path+"?after=1", "Last-Event-ID", "3").brief(2), "the header goes first")
	require.Equal(t, []string{`caught_up {"seq":4}`}, b.stream(path+"?after=4").brief(1))
	live := b.stream(path + "?after=latest")
	require.Equal(t, []string{`caught_up {"seq":4}`}, live.brief(1))
	require.Equal(t, []string{"4 text_delta", `caught_up {"seq":4}`}, b.stream(path+"?after=latest", "Last-Event-ID", "3").brief(2))
	b.store.Text(id, "y")
	require.Equal(t, []string{"5 text_delta"}, live.brief(1))
}

func TestInvalidPositions(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.store.Put(session.Running)
	b.store.Text(id, "x")
	path := "/api/sessions/" + id + "/events"
	for _, after := range []string{"", "x", "-1", "+1", "1.5", "1e3", "0x1", "%201", "99999999999999999999999", "9223372036854775807"} {
		p := b.do("GET", path+"?after="+after, "").problem(http.StatusBadRequest, "invalid_request")
		require.Equal(t, "after", p.Errors[0].Field, after)
	}
	p := b.do("GET", path+"?after=1", "", "Last-Event-ID", "x").problem(http.StatusBadRequest, "invalid_request")
	require.Equal(t, "Last-Event-ID", p.Errors[0].Field)
	p = b.do("GET", path+"?after=2", "").problem(http.StatusBadRequest, "invalid_request")
	require.Contains(t, p.Detail, "newest event is 1", "in the future")
	eventually(t, "no reader is left", func() bool { return b.store.OpenReaders() == 0 })
}

func TestDeletedPositionReturns410(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.store.Put(session.Running)
	for range 6 {
		b.store.Text(id, "x")
	}
	b.store.Forget(id, 4)
	path := "/api/sessions/" + id + "/events"
	p := b.do("GET", path+"?after=1", "").problem(http.StatusGone, "position_gone")
	require.Contains(t, p.Detail, "after 3", "it names where reading can continue")
	require.Equal(t, []string{"4 text_delta", "5 text_delta", "6 text_delta", `caught_up {"seq":6}`}, b.stream(path+"?after=3").brief(4))
	eventually(t, "refused readers are closed", func() bool { return b.store.OpenReaders() <= 1 })
}

func TestGapInMidStreamIsReported(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.store.Put(session.Running)
	b.store.Text(id, "x")
	s := b.stream("/api/sessions/" + id + "/events")
	require.Equal(t, []string{"1 text_delta", `caught_up {"seq":1}`}, s.brief(2))
	b.store.With(id, func(r *apitest.Row) { // as if written and deleted before the reader read it
		r.First, r.Events = 5, nil
		b.store.Append(r, "text_delta", map[string]string{"blockId": "b", "delta": "y"})
	})
	require.Equal(t, []string{`gap {"from":2,"to":4}`, "5 text_delta"}, s.brief(2))
	b.store.Text(id, "z")
	require.Equal(t, []string{"6 text_delta"}, s.brief(1))
}

func TestStreamEndsWithSession(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.store.Put(session.Running)
	b.store.With(id, func(r *apitest.Row) {
		r.Prompts = []session.Prompt{{ID: "p", SessionID: id, Status: session.PromptQueued, Ordinal: 1}}
	})
	s := b.stream("/api/sessions/" + id + "/events")
	require.Equal(t, []string{`caught_up {"seq":0}`}, s.brief(1))
	b.store.Status(id, session.Terminated)
	require.Equal(t, []string{"1 status"}, s.brief(1))
	b.store.Prompt(id, "p", session.PromptCancelled) // waiting prompts end after the session
	require.Equal(t, []string{"2 prompt", "end {}"}, s.brief(2))
	s.ended()

	late := b.stream("/api/sessions/" + id + "/events")
	require.Equal(t, []string{"1 status", "2 prompt", `caught_up {"seq":2}`, "end {}"}, late.brief(4))
	late.ended()
	after := b.stream("/api/sessions/"+id+"/events", "Last-Event-ID", "2")
	require.Equal(t, []string{`caught_up {"seq":2}`, "end {}"}, after.brief(2))
	after.ended()
	eventually(t, "every reader is closed", func() bool { return b.store.OpenReaders() == 0 })
}

func TestStreamDoesNotEndBeforeItsPrompts(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *api.Config) { c.Heartbeat = 50 * time.Millisecond })
	id := b.store.Put(session.Terminated)
	b.store.With(id, func(r *apitest.Row) {
		r.Prompts = []session.Prompt{{ID: "p", SessionID: id, Status: session.PromptProcessing, Ordinal: 1}}
	})
	s := b.stream("/api/sessions/" + id + "/events")
	require.Equal(t, []string{`caught_up {"seq":0}`}, s.heartbeats(5))
	b.store.Prompt(id, "p", session.PromptCancelled)
	for {
		f, ok := s.next()
		require.True(t, ok)
		if f.event == "end" {
			break
		}
	}
	s.ended()
}

func TestIdleStreamSendsHeartbeats(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *api.Config) { c.Heartbeat = 20 * time.Millisecond })
	s := b.stream("/api/sessions/" + b.store.Put(session.Running) + "/events")
	require.Equal(t, []string{`caught_up {"seq":0}`}, s.heartbeats(5))
}

func TestStreamsEndWhenServerStops(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *api.Config) { c.ShutdownTimeout = time.Hour })
	id := b.store.Put(session.Running)
	s := b.stream("/api/sessions/" + id + "/events")
	s.brief(1)
	stopped := make(chan error, 1)
	go func() { stopped <- b.stop() }()
	s.ended()
	select {
	case err := <-stopped:
		require.NoError(t, err)
	case <-time.After(waitLimit):
		require.Fail(t, "the stream holds the server up")
	}
	require.Zero(t, b.store.OpenReaders())
}

func TestStreamEndsWhenItsReaderLeaves(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.store.Put(session.Running)
	s := b.stream("/api/sessions/" + id + "/events")
	s.brief(1)
	require.Equal(t, 1, b.store.OpenReaders())
	require.NoError(t, s.resp.Body.Close())
	eventually(t, "its reader is closed", func() bool { return b.store.OpenReaders() == 0 })
}

func TestStreamEndsWhenLogFails(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.store.Put(session.Running)
	s := b.stream("/api/sessions/" + id + "/events")
	s.brief(1)
	b.store.Fail("Next", errors.New("connection lost"))
	b.store.Text(id, "x")
	s.ended()
	eventually(t, "it is logged", func() bool { return strings.Contains(b.logs.String(), "stream aborted") })
	b.do("GET", "/api/sessions/"+id+"/events", "").problem(http.StatusInternalServerError, "internal")
	eventually(t, "its readers are closed", func() bool { return b.store.OpenReaders() == 0 })
}

func TestSlowReaderIsDisconnected(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *api.Config) { c.WriteTimeout = time.Second })
	id := b.store.Put(session.Running)
	conn, err := net.Dial("tcp", strings.TrimPrefix(b.url, "http://"))
	require.NoError(t, err)
	defer conn.Close()
	_, err = fmt.Fprintf(conn, "GET /api/sessions/%s/events HTTP/1.1\r\nHost: localhost\r\n\r\n", id)
	require.NoError(t, err)
	eventually(t, "the stream is open", func() bool { return b.store.OpenReaders() == 1 })
	big := strings.Repeat("x", 1<<20)
	for range 24 { // more than the buffers of both ends hold
		b.store.Text(id, big)
	}
	eventually(t, "the stream is cut", func() bool { return b.store.OpenReaders() == 0 })
	eventually(t, "it is logged", func() bool { return strings.Contains(b.logs.String(), "stream dropped") })
	_, err = io.Copy(io.Discard, conn)
	_ = err // whether reset or ended, the connection is closed
	require.Contains(t, string(b.do("GET", "/metrics", "").body), "overwinter_api_streams_dropped_total 1")
}

func TestStreamOutlivesDeadlinesOfRequests(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *api.Config) {
		c.RequestTimeout = 50 * time.Millisecond
		c.Heartbeat = 50 * time.Millisecond
	})
	s := b.stream("/api/sessions/" + b.store.Put(session.Running) + "/events")
	require.Equal(t, []string{`caught_up {"seq":0}`}, s.heartbeats(3))
}

// TestStreamTakesOneGoroutineMoreThanItsConnection counts the goroutines of open streams: the one
// that net/http has for a request, and the one that notices when a client leaves.
func TestStreamTakesOneGoroutineMoreThanItsConnection(t *testing.T) { //nolint:paralleltest // goroutines are counted
	b := setup(t)
	id := b.store.Put(session.Running)
	const streams = 50
	open := func() {
		conn, err := net.Dial("tcp", strings.TrimPrefix(b.url, "http://"))
		require.NoError(t, err)
		t.Cleanup(func() { conn.Close() })
		_, err = fmt.Fprintf(conn, "GET /api/sessions/%s/events HTTP/1.1\r\nHost: localhost\r\n\r\n", id)
		require.NoError(t, err)
		lines := bufio.NewScanner(conn)
		for lines.Scan() && !strings.HasPrefix(lines.Text(), "event: caught_up") {
		}
		require.NoError(t, lines.Err())
	}
	open()
	before := runtime.NumGoroutine()
	for range streams {
		open()
	}
	require.LessOrEqual(t, runtime.NumGoroutine()-before, 2*streams+2)
}
