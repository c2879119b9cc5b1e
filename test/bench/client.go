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
	"time"
)

// object is a JSON object as a client without our types sees it.
type object = map[string]any

// client speaks HTTP to the api.
type client struct {
	url  string
	http *http.Client
}

func newClient(url string) *client {
	return &client{url: url, http: &http.Client{Transport: &http.Transport{
		MaxIdleConnsPerHost: 256, // a connection for each stream that ends and begins again
		DisableCompression:  true,
	}}}
}

func (c *client) close() { c.http.CloseIdleConnections() }

// errUnavailable is an answer of 503: a part of the system did not answer in time.
var errUnavailable = errors.New("unavailable")

// call makes a request, which must be answered with a status below 300. One that is answered with
// 503 is made again, as every client does; it takes so much longer.
func (c *client) call(ctx context.Context, method, path string, body any) (object, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
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
		return nil, fmt.Errorf("%s %s: %d %s", method, path, response.StatusCode, raw)
	}
	var out object
	return out, json.Unmarshal(raw, &out)
}

// create makes a session that does not fall asleep by itself.
func (c *client) create(ctx context.Context) (string, error) {
	got, err := c.call(ctx, http.MethodPost, "/api/sessions", object{"agent": "demo", "idleTimeout": "24h"})
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

// event is one event of a stream, and when it was here.
type event struct {
	Type  string
	RunID string
	At    time.Time // of the agent or the store, in whole milliseconds
	Data  struct {
		PromptID string
		Status   string
		Outcome  string
		Block    struct{ Type string }
	}
	arrived time.Time
}

// stream gives every event of a session to take until ctx ends, and then returns nil.
func (c *client) stream(ctx context.Context, sessionID string, take func(event)) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url+"/api/sessions/"+sessionID+"/events", nil)
	if err != nil {
		return err
	}
	response, err := c.http.Do(request)
	if err != nil {
		return ignoreEnd(ctx, err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("events of %s: %s", sessionID, response.Status)
	}
	lines := bufio.NewReaderSize(response.Body, 64<<10)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return ignoreEnd(ctx, fmt.Errorf("events of %s: %w", sessionID, err))
		}
		data, ok := bytes.CutPrefix(line, []byte("data: "))
		if !ok {
			continue
		}
		e := event{arrived: time.Now()}
		if err := json.Unmarshal(data, &e); err != nil {
			return fmt.Errorf("events of %s: %w", sessionID, err)
		}
		if e.Type != "" { // a marker has none
			take(e)
		}
	}
}

// ignoreEnd leaves out an error that came because ctx has ended.
func ignoreEnd(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	return nil
}
