package client

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/sethvargo/go-retry"

	"github.com/overwinter-dev/overwinter/internal/backoff"
)

// silence is how long a stream may receive no data, not even a comment, before its connection is
// closed: three heartbeats of the server.
const silence = 45 * time.Second

// Special values of positions.
const (
	// Latest is the current end of a log; only new events follow.
	Latest int64 = -1
	// Oldest is the position before the oldest stored event, for FollowAll.
	Oldest int64 = -2
)

// message is one server-sent event. An id without data has no event.
type message struct{ id, event, data string }

// source is a stream of server-sent events that is read over one or more connections.
type source struct {
	client *Client
	path   string
	query  string
	// position is sent with each connection. take updates it.
	position int64
	// take handles a message, and reports whether it is the last one to read.
	take func(message) (done bool, err error)

	connected bool // a stream has been open before
	done      bool
}

// run reads until take has reported the last message. Its error is a refusal of the server, or the
// end of ctx.
func (s *source) run(ctx context.Context) error {
	pauses := backoff.New(firstWait, maxRetryWait)
	for {
		before := s.position
		err := s.connect(ctx)
		switch {
		case s.done:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case !s.connected || refused(err):
			return err
		}
		if s.position > before {
			pauses = backoff.New(firstWait, maxRetryWait)
		}
		pause, _ := pauses.Next()
		sleep(ctx, pause)
	}
}

// connect reads one connection until it breaks or s is done.
func (s *source) connect(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	resp, err := s.open(ctx)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	s.connected = true

	watchdog := time.AfterFunc(silence, cancel)
	defer watchdog.Stop()
	lines := bufio.NewReader(resp.Body)
	var m message
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			return err // the server sends a truncated message again, complete
		}
		watchdog.Reset(silence)
		line = strings.TrimRight(line, "\r\n")
		name, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case name == "id":
			m.id = value
		case name == "event":
			m.event = value
		case name == "data":
			m.data += value
		case line == "":
			if m != (message{}) {
				// Nothing is read while the program handles a message, however long that takes.
				watchdog.Stop()
				if s.done, err = s.take(m); err != nil || s.done {
					return err
				}
				watchdog.Reset(silence)
			}
			m = message{}
		}
	}
}

// open starts a stream, retrying a few times until it is established.
func (s *source) open(ctx context.Context) (*http.Response, error) {
	return retry.DoValue(ctx, attemptPauses(), func(ctx context.Context) (*http.Response, error) {
		resp, err := s.dial(ctx)
		if again, _ := retriable(err); again && !s.connected {
			err = retry.RetryableError(err)
		}
		return resp, err
	})
}

func (s *source) dial(ctx context.Context) (*http.Response, error) {
	query := []string{}
	switch s.position {
	case Latest:
		query = append(query, "after=latest")
	case Oldest:
		query = append(query, "after=oldest")
	}
	if s.query != "" {
		query = append(query, s.query)
	}
	req, err := s.client.request(ctx, http.MethodGet, strings.TrimSuffix(s.path+"?"+strings.Join(query, "&"), "?"), nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "text/event-stream")
	if s.position >= 0 {
		req.Header.Set("Last-Event-ID", strconv.FormatInt(s.position, 10))
	}
	resp, err := s.client.http.Do(req)
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
