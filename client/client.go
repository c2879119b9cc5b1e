package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/sethvargo/go-retry"

	"github.com/overwinter-dev/overwinter/internal/backoff"
)

// The retries of calls.
const (
	attempts     = 4
	firstWait    = 100 * time.Millisecond
	callTimeout  = 30 * time.Second
	maxRetryWait = 5 * time.Second
	maxAnswer    = 256 << 20 // in bytes; a long session has many blocks
)

// Client calls the API of one server. It is safe for concurrent use.
type Client struct {
	base *url.URL
	key  string
	http *http.Client
}

// New returns a client of the server at baseURL, such as http://127.0.0.1:8080. It sends the key
// unless the key is empty.
func New(baseURL, key string) (*Client, error) {
	base, err := url.Parse(strings.TrimRight(baseURL, "/"))
	if err != nil {
		return nil, fmt.Errorf("address of the api: %w", err)
	}
	if (base.Scheme != "http" && base.Scheme != "https") || base.Host == "" {
		return nil, fmt.Errorf("address of the api: %q must begin with http:// or https:// and name a host", baseURL)
	}
	transport, ok := http.DefaultTransport.(*http.Transport)
	if !ok {
		return nil, errors.New("the default HTTP transport has been replaced by one that cannot be copied")
	}
	return &Client{base: base, key: key, http: &http.Client{Transport: transport.Clone()}}, nil
}

// Close closes idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// call sends a request, with retries, and reads the response into out: as JSON, or unchanged if out
// is a *[]byte.
func (c *Client) call(ctx context.Context, method, path string, body, out any, header ...string) (status int, err error) {
	var data []byte
	if f, ok := body.(form); ok {
		data, header = f.data, append(header, "Content-Type", f.contentType)
	} else if body != nil {
		if data, err = json.Marshal(body); err != nil {
			return 0, fmt.Errorf("encode request: %w", err)
		}
	}
	pauses := attemptPauses()
	for {
		status, err = c.once(ctx, method, path, data, out, header)
		again, after := retriable(err)
		pause, last := pauses.Next()
		if !again || last || ctx.Err() != nil {
			return status, err
		}
		if after > 0 {
			pause = min(after, maxRetryWait)
		}
		if !sleep(ctx, pause) {
			return status, err
		}
	}
}

// attemptPauses returns the pauses between the attempts of one call.
func attemptPauses() retry.Backoff {
	return retry.WithMaxRetries(attempts-1, backoff.New(firstWait, maxRetryWait))
}

// retriable reports whether a retry of the call may succeed, and returns the delay that the server
// has requested.
func retriable(err error) (bool, time.Duration) {
	if err == nil {
		return false, 0
	}
	if problem, ok := errors.AsType[*Error](err); ok {
		return problem.Status == http.StatusServiceUnavailable || problem.Status == http.StatusTooManyRequests, problem.RetryAfter
	}
	_, reached := errors.AsType[*url.Error](err)
	return reached, 0
}

// sleep waits for d and returns false if ctx ends first.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func (c *Client) once(ctx context.Context, method, path string, body []byte, out any, header []string) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout+time.Duration(len(body)>>20)*time.Second)
	defer cancel()
	req, err := c.request(ctx, method, path, body)
	if err != nil {
		return 0, err
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	if resp.StatusCode >= http.StatusBadRequest {
		return resp.StatusCode, readError(resp)
	}
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return resp.StatusCode, fmt.Errorf("read answer: %w", err)
	}
	if raw, ok := out.(*[]byte); ok {
		*raw = data
		return resp.StatusCode, nil
	}
	if err := json.Unmarshal(data, out); err != nil {
		return resp.StatusCode, fmt.Errorf("%s does not answer like overwinter: %w", c.base, err)
	}
	return resp.StatusCode, nil
}

func (c *Client) request(ctx context.Context, method, path string, body []byte) (*http.Request, error) {
	var reader io.Reader
	if body != nil {
		reader = bytes.NewReader(body)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.base.String()+path, reader)
	if err != nil {
		return nil, fmt.Errorf("make request: %w", err)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.key != "" {
		req.Header.Set("Authorization", "Bearer "+c.key)
	}
	return req, nil
}
