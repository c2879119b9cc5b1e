package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
)

// object is a JSON object without types.
type object = map[string]any

// client speaks HTTP to the api.
type client struct {
	url  string
	http *http.Client
}

func newClient(url string) *client {
	return &client{url: url, http: &http.Client{Transport: &http.Transport{
		MaxIdleConnsPerHost: 256, // reconnecting streams reuse connections
		DisableCompression:  true,
	}}}
}

func (c *client) close() { c.http.CloseIdleConnections() }

// errUnavailable is a response of 503: a part of the system did not respond in time.
var errUnavailable = errors.New("unavailable")

// statusError is a response with an unexpected status.
type statusError struct {
	method, path string
	status       int
	body         string
}

func (e *statusError) Error() string {
	return fmt.Sprintf("%s %s: %d %s", e.method, e.path, e.status, e.body)
}

// call makes a request and requires a status below 300. It retries after a 503, as every client
// does; the measurement includes the time for this.
func (c *client) call(ctx context.Context, method, path string, body any) (object, error) {
	ctx, cancel := context.WithTimeout(ctx, waitLimit)
	defer cancel()
	for {
		out, err := c.try(ctx, method, path, body)
		if !errors.Is(err, errUnavailable) {
			return out, err
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return nil, err
		}
	}
}

func (c *client) try(ctx context.Context, method, path string, body any) (object, error) {
	raw, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, method, c.url+path, bytes.NewReader(raw))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := c.http.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if raw, err = io.ReadAll(response.Body); err != nil {
		return nil, err
	}
	if response.StatusCode == http.StatusServiceUnavailable {
		return nil, fmt.Errorf("%s %s: %w: %s", method, path, errUnavailable, raw)
	}
	if response.StatusCode >= 300 {
		return nil, &statusError{method, path, response.StatusCode, string(raw)}
	}
	var out object
	return out, json.Unmarshal(raw, &out)
}

// create creates a session that does not hibernate by itself.
func (c *client) create(ctx context.Context, agent string) (string, error) {
	got, err := c.call(ctx, http.MethodPost, "/api/sessions", object{"agent": agent, "idleTimeout": "24h"})
	if err != nil {
		return "", err
	}
	return got["id"].(string), nil
}

func (c *client) prompt(ctx context.Context, sessionID, promptID, content string) error {
	_, err := c.call(ctx, http.MethodPost, "/api/sessions/"+sessionID+"/prompts", object{"id": promptID, "content": content})
	return err
}

func (c *client) command(ctx context.Context, sessionID, name string) error {
	_, err := c.call(ctx, http.MethodPost, "/api/sessions/"+sessionID+"/"+name, object{})
	return err
}

// stopAll stops sessions and returns when their sandboxes are terminated, so that they do not
// disturb the next measurement.
func (c *client) stopAll(ctx context.Context, sessions []string) error {
	ctx, cancel := context.WithTimeout(ctx, waitLimit+time.Duration(len(sessions))*time.Second)
	defer cancel()
	var group errgroup.Group
	group.SetLimit(8)
	for _, id := range sessions {
		group.Go(func() error {
			if err := c.command(ctx, id, "stop"); err != nil {
				return err
			}
			for {
				got, err := c.call(ctx, http.MethodGet, "/api/sessions/"+id, nil)
				if err != nil {
					return err
				}
				if got["status"] == "terminated" {
					return nil
				}
				select {
				case <-time.After(50 * time.Millisecond):
				case <-ctx.Done():
					return fmt.Errorf("session %s is %v: %w", id, got["status"], ctx.Err())
				}
			}
		})
	}
	return group.Wait()
}

// event is one event of a stream, and when it arrived.
type event struct {
	Type  string
	RunID string
	At    time.Time // of the agent or the store, in whole milliseconds
	Data  struct {
		PromptID string
		Status   string
		Outcome  string
		Block    struct{ Type string }
		Delta    string
	}
	arrived time.Time
}

// words returns the number of words of a text_delta: an event may contain several.
func (e event) words() int { return len(strings.Fields(e.Data.Delta)) }

// stream calls take for every event of a session until ctx ends, and then returns nil.
func (c *client) stream(ctx context.Context, sessionID string, take func(event)) error {
	return c.lines(ctx, "/api/sessions/"+sessionID+"/events", func(data []byte) error {
		e := event{arrived: time.Now()}
		if err := json.Unmarshal(data, &e); err != nil {
			return fmt.Errorf("events of %s: %w", sessionID, err)
		}
		if e.Type != "" { // a marker has none
			take(e)
		}
		return nil
	})
}

// lines calls take with the data of every server-sent event of a stream, without its line end,
// until ctx ends, and then returns nil. The data is valid until take returns.
func (c *client) lines(ctx context.Context, path string, take func(data []byte) error) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url+path, nil)
	if err != nil {
		return err
	}
	response, err := c.http.Do(request)
	if err != nil {
		return ignoreEnd(ctx, err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", path, response.Status)
	}
	reader := bufio.NewReaderSize(response.Body, 64<<10)
	var long []byte // of a line that is longer than the buffer
	for {
		line, err := reader.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			long = append(long, line...)
			continue
		}
		if err != nil {
			return ignoreEnd(ctx, fmt.Errorf("%s: %w", path, err))
		}
		if len(long) > 0 {
			line = append(long, line...)
			long = long[:0]
		}
		if data, ok := bytes.CutPrefix(line, []byte("data: ")); ok {
			if err := take(bytes.TrimSuffix(data, []byte("\n"))); err != nil {
				return err
			}
		}
	}
}

// ignoreEnd omits an error that occurred because ctx has ended.
func ignoreEnd(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	return nil
}
