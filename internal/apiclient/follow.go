package apiclient

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/sethvargo/go-retry"

	"github.com/overwinter-dev/overwinter/internal/backoff"
	"github.com/overwinter-dev/overwinter/internal/event"
)

// silence is how long a stream may say nothing at all, not even a comment, before
// its connection is given up: three heartbeats of the server.
const silence = 45 * time.Second

// Event is an event of a session, or a marker of its stream, which has Type and
// Data alone.
type Event struct {
	event.JSON
	// Raw is the data as it came, one line of JSON.
	Raw json.RawMessage
}

// Marker reports whether the event is a marker.
func (e Event) Marker() bool { return e.Seq == 0 }

// Position is the seq of the newest event of a session, 0 before the first.
func (c *Client) Position(ctx context.Context, sessionID string) (int64, error) {
	for e, err := range c.Follow(ctx, sessionID, latest) {
		if err != nil {
			return 0, err
		}
		if e.Type == event.MarkerCaughtUp { // the first, since nothing follows the newest
			var at struct{ Seq int64 }
			if err := json.Unmarshal(e.Data, &at); err != nil {
				return 0, fmt.Errorf("read position: %w", err)
			}
			return at.Seq, nil
		}
	}
	return 0, errors.New("the stream ended before it sent its position")
}

// latest is a position for callers that only need the end of the log.
const latest = -1

// Follow yields the events of a session after the position after, in order and each once, until the
// session is over (the last is then the marker end), the server refuses, or ctx is done. It
// reconnects if an established connection breaks; caught_up is yielded once. An error is the last
// thing yielded.
func (c *Client) Follow(ctx context.Context, sessionID string, after int64) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		f := follower{client: c, sessionID: sessionID, last: after, yield: yield}
		pauses := backoff.New(firstWait, maxRetryWait)
		for {
			before := f.last
			err := f.connect(ctx)
			switch {
			case f.done:
				return
			case ctx.Err() != nil:
				yield(Event{}, ctx.Err())
				return
			case !f.connected || refused(err):
				yield(Event{}, err)
				return
			}
			if f.last > before {
				pauses = backoff.New(firstWait, maxRetryWait)
			}
			pause, _ := pauses.Next()
			sleep(ctx, pause)
		}
	}
}

// refused reports whether connecting again would not help.
func refused(err error) bool {
	problem, ok := errors.AsType[*Error](err)
	return ok && problem.Status < http.StatusInternalServerError && problem.Status != http.StatusTooManyRequests
}

// follower is one call of Follow.
type follower struct {
	client    *Client
	sessionID string
	yield     func(Event, error) bool
	last      int64 // position
	connected bool  // a stream has once been open
	caughtUp  bool  // the marker has been yielded
	done      bool  // the end has come, or the caller has left
}

// connect reads one connection until it breaks or f is done.
func (f *follower) connect(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	resp, err := f.open(ctx)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	f.connected = true

	watchdog := time.AfterFunc(silence, cancel)
	defer watchdog.Stop()
	lines := bufio.NewReader(resp.Body)
	var m message
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			return err // a truncated message comes again, whole
		}
		watchdog.Reset(silence)
		line = strings.TrimRight(line, "\r\n")
		name, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case name == "event":
			m.event = value
		case name == "data":
			m.data += value
		case line == "":
			if m.data != "" {
				if err := f.take(m); err != nil || f.done {
					return err
				}
			}
			m = message{}
		}
	}
}

// message is one message of a stream.
type message struct{ event, data string }

// open starts a stream, trying a few times before the first that stands.
func (f *follower) open(ctx context.Context) (*http.Response, error) {
	return retry.DoValue(ctx, attemptPauses(), func(ctx context.Context) (*http.Response, error) {
		resp, err := f.dial(ctx)
		if again, _ := retriable(err); again && !f.connected {
			err = retry.RetryableError(err)
		}
		return resp, err
	})
}

func (f *follower) dial(ctx context.Context) (*http.Response, error) {
	path := sessionPath(f.sessionID) + "/events"
	if f.last == latest {
		path += "?after=latest"
	}
	req, err := f.client.request(ctx, http.MethodGet, path, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "text/event-stream")
	if f.last > 0 {
		req.Header.Set("Last-Event-ID", strconv.FormatInt(f.last, 10))
	}
	resp, err := f.client.http.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		defer resp.Body.Close()
		if resp.StatusCode < http.StatusBadRequest {
			return nil, fmt.Errorf("the server answers %s where a stream was expected", resp.Status)
		}
		return nil, readError(resp)
	}
	return resp, nil
}

// take yields what a message means.
func (f *follower) take(m message) error {
	switch m.event {
	case event.MarkerCaughtUp, event.MarkerGap, event.MarkerEnd:
		return f.marker(m)
	}
	e := Event{Raw: json.RawMessage(m.data)}
	if err := json.Unmarshal(e.Raw, &e.JSON); err != nil {
		return fmt.Errorf("read event: %w", err)
	}
	if e.Seq <= f.last {
		return nil
	}
	f.last = e.Seq
	f.done = !f.yield(e, nil)
	return nil
}

func (f *follower) marker(m message) error {
	e := Event{Raw: json.RawMessage(m.data)}
	e.Type, e.Data = m.event, e.Raw
	switch m.event {
	case event.MarkerCaughtUp:
		if f.caughtUp {
			return nil
		}
		f.caughtUp = true
	case event.MarkerGap:
		var gap struct {
			To int64 `json:"to"`
		}
		if err := json.Unmarshal(e.Raw, &gap); err != nil {
			return fmt.Errorf("read gap: %w", err)
		}
		f.last = max(f.last, gap.To)
	}
	f.done = !f.yield(e, nil) || m.event == event.MarkerEnd
	return nil
}
