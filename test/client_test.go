package test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/api/conform"
)

// object is a JSON object without types.
type object = map[string]any

// call makes one request and returns status and body.
func (s *stack) call(method, path string, body any) (int, object, error) {
	var payload io.Reader
	if body != nil {
		raw, err := json.Marshal(body)
		if err != nil {
			return 0, nil, err
		}
		payload = bytes.NewReader(raw)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, "http://"+s.api+path, payload)
	if err != nil {
		return 0, nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, nil, err
	}
	defer response.Body.Close()
	raw, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, nil, err
	}
	var out object
	if len(raw) > 0 {
		if err := json.Unmarshal(raw, &out); err != nil {
			return response.StatusCode, nil, fmt.Errorf("%s %s: %d %s: %w", method, path, response.StatusCode, raw, err)
		}
	}
	return response.StatusCode, out, nil
}

func (s *stack) must(t *testing.T, status int, method, path string, body any) object {
	t.Helper()
	got, out, err := s.call(method, path, body)
	require.NoError(t, err)
	require.Equal(t, status, got, "%s %s: %v", method, path, out)
	return out
}

// insist repeats a request until the status is below 500, as a client does while parts of the
// system are killed. Requests carry ids, so that a repeat has no effect.
func (s *stack) insist(t *testing.T, method, path string, body any) object {
	t.Helper()
	var out object
	eventually(t, 60*time.Second, method+" "+path, func() error {
		status, got, err := s.call(method, path, body)
		if err != nil {
			return err
		}
		if status >= 500 {
			return fmt.Errorf("%d %v", status, got)
		}
		require.Less(t, status, 400, "%s %s: %v", method, path, got)
		out = got
		return nil
	})
	return out
}

func (s *stack) create(t *testing.T, body object) string {
	t.Helper()
	if _, ok := body["agent"]; !ok {
		body["agent"] = "demo"
	}
	return s.must(t, http.StatusCreated, "POST", "/api/sessions", body)["id"].(string)
}

func (s *stack) prompt(t *testing.T, sessionID, id, content string) {
	t.Helper()
	s.insist(t, "POST", "/api/sessions/"+sessionID+"/prompts", object{"id": id, "content": content})
}

// waitStatus waits until the session has the status.
func (s *stack) waitStatus(t *testing.T, sessionID, status string, within time.Duration) object {
	t.Helper()
	var out object
	eventually(t, within, "session is "+status, func() error {
		code, got, err := s.call("GET", "/api/sessions/"+sessionID, nil)
		if err != nil {
			return err
		}
		if code != http.StatusOK || got["status"] != status {
			return fmt.Errorf("%d %v (%v)", code, got["status"], got["statusReason"])
		}
		out = got
		return nil
	})
	return out
}

// waitPrompt waits until the prompt has ended and returns it.
func (s *stack) waitPrompt(t *testing.T, sessionID, promptID string, within time.Duration) object {
	t.Helper()
	var out object
	eventually(t, within, "prompt "+promptID+" is over", func() error {
		code, got, err := s.call("GET", "/api/sessions/"+sessionID+"/prompts/"+promptID, nil)
		if err != nil {
			return err
		}
		switch got["status"] {
		case "completed", "failed", "cancelled", "unknown":
			out = got
			return nil
		}
		return fmt.Errorf("%d %v", code, got["status"])
	})
	return out
}

// thread is one conversation of a session: the main one, or a subagent's.
type thread struct {
	id     string
	blocks []object
}

// conversations returns all pages of a session's conversations, the main one first.
func (s *stack) conversations(t *testing.T, sessionID string) (all []thread) {
	t.Helper()
	for query := ""; ; {
		page := s.must(t, http.StatusOK, "GET", "/api/sessions/"+sessionID+"/blocks"+query, nil)
		for _, raw := range page["conversations"].([]any) {
			id := raw.(object)["id"].(string)
			at := slices.IndexFunc(all, func(c thread) bool { return c.id == id })
			if at < 0 {
				at, all = len(all), append(all, thread{id: id})
			}
			for _, block := range raw.(object)["blocks"].([]any) {
				all[at].blocks = append(all[at].blocks, block.(object))
			}
		}
		cursor, more := page["nextCursor"].(string)
		if !more {
			return all
		}
		query = "?" + url.Values{"cursor": {cursor}}.Encode()
	}
}

// text returns the agent's text and the output of its tools, in order.
func (s *stack) text(t *testing.T, sessionID string) string {
	t.Helper()
	var b strings.Builder
	for _, block := range s.conversations(t, sessionID)[0].blocks {
		switch block["type"] {
		case "assistant_text":
			fmt.Fprintf(&b, "%v\n", block["content"])
		case "tool_result":
			fmt.Fprintf(&b, "%v\n", block["output"])
		}
	}
	return b.String()
}

// event is one event of a stream.
type event struct {
	Seq            int64           `json:"seq"`
	Type           string          `json:"type"`
	ConversationID string          `json:"conversationId"`
	RunID          string          `json:"runId"`
	At             time.Time       `json:"at"` // of the agent or the store, in whole milliseconds
	Data           json.RawMessage `json:"data"`

	at time.Time // when it was read
}

// follower reads a session's stream until the end of the test. Like a client, it reconnects with
// its last position when the connection is lost.
type follower struct {
	url    string
	mu     sync.Mutex
	events []event
	broken error // the stream violated its guarantees
	ended  bool
	cancel context.CancelFunc
	done   chan struct{}
}

func (s *stack) follow(t *testing.T, sessionID string) *follower {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	f := &follower{url: "http://" + s.api + "/api/sessions/" + sessionID + "/events", cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(f.done)
		for ctx.Err() == nil && !f.finished() {
			f.connect(ctx)
			select {
			case <-time.After(50 * time.Millisecond):
			case <-ctx.Done():
			}
		}
	}()
	t.Cleanup(f.stop)
	return f
}

func (f *follower) stop() {
	f.cancel()
	<-f.done
}

func (f *follower) finished() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.ended || f.broken != nil
}

func (f *follower) last() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return int64(len(f.events))
}

func (f *follower) connect(ctx context.Context) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, f.url, nil)
	if err != nil {
		return
	}
	request.Header.Set("Last-Event-ID", strconv.FormatInt(f.last(), 10))
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return
	}
	lines := bufio.NewReader(response.Body)
	var kind, data string
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			return
		}
		line = strings.TrimRight(line, "\n")
		switch {
		case strings.HasPrefix(line, "event: "):
			kind = line[len("event: "):]
		case strings.HasPrefix(line, "data: "):
			data = line[len("data: "):]
		case line == "":
			f.take(kind, data)
			kind, data = "", ""
		}
	}
}

// conforming is the number of events of a stream that are checked against the OpenAPI document.
const conforming = 1000

func (f *follower) take(kind, data string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch kind {
	case "", "caught_up":
		return
	case "end":
		f.ended = true
		return
	case "gap":
		f.broken = errors.New("the stream has a gap: " + data)
		return
	}
	var e event
	if err := json.Unmarshal([]byte(data), &e); err != nil {
		f.broken = fmt.Errorf("event %q: %w", data, err)
		return
	}
	if len(f.events) < conforming {
		if err := conform.Event([]byte(data)); err != nil {
			f.broken = err
			return
		}
	}
	if want := int64(len(f.events)) + 1; e.Seq != want {
		f.broken = fmt.Errorf("event %d came where %d was due", e.Seq, want)
		return
	}
	e.shorten()
	e.at = time.Now()
	f.events = append(f.events, e)
}

// shorten drops large parts of an event that no test reads: the queue, and the text of prompts.
func (e *event) shorten() {
	const enough = 4 << 10
	if len(e.Data) <= enough {
		return
	}
	switch e.Type {
	case "queue":
		e.Data = nil
	case "prompt":
		var data struct{ Prompt object }
		if json.Unmarshal(e.Data, &data) == nil && data.Prompt != nil {
			delete(data.Prompt, "content")
			if short, err := json.Marshal(object{"prompt": data.Prompt}); err == nil {
				e.Data = short
			}
		}
	}
}

// all returns the events up to the newest one of the log. all waits for that event: the API may show
// a prompt's status before the stream has delivered its events.
func (f *follower) all(t *testing.T) []event {
	t.Helper()
	newest := f.newest(t)
	eventually(t, time.Minute, "the stream has the events of the log", func() error {
		select {
		case <-f.done:
			return nil
		default:
		}
		if last := f.last(); last < newest && !f.finished() {
			return fmt.Errorf("it has %d of %d events", last, newest)
		}
		return nil
	})
	return f.seen(t)
}

// newest returns the position of the log's newest event; 0 if the api does not respond.
func (f *follower) newest(t *testing.T) int64 {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, f.url+"?after=latest", nil)
	require.NoError(t, err)
	request.Header.Set("Accept", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0
	}
	defer response.Body.Close()
	var page struct{ After int64 }
	if response.StatusCode != http.StatusOK || json.NewDecoder(response.Body).Decode(&page) != nil {
		return 0
	}
	return page.After
}

func (f *follower) seen(t *testing.T) []event {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	require.NoError(t, f.broken)
	return append([]event(nil), f.events...)
}

// wait waits for an event that match accepts.
func (f *follower) wait(t *testing.T, within time.Duration, what string, match func(event) bool) event {
	t.Helper()
	var found event
	eventually(t, within, what, func() error {
		for _, e := range f.seen(t) {
			if match(e) {
				found = e
				return nil
			}
		}
		return fmt.Errorf("not among %d events", f.last())
	})
	return found
}

// textOf returns the concatenated deltas of a run.
func textOf(t *testing.T, events []event, runID string) string {
	t.Helper()
	var b strings.Builder
	for _, e := range events {
		if e.Type == "text_delta" && e.RunID == runID {
			var d struct{ Delta string }
			require.NoError(t, json.Unmarshal(e.Data, &d))
			b.WriteString(d.Delta)
		}
	}
	return b.String()
}
