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
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"
	"golang.org/x/sync/errgroup"
)

// protocolReaders is the number of concurrent readers of one protocol.
const protocolReaders = 20

// protocol is a way to read the log of a session.
type protocol struct {
	name string
	// read reads the log from its start to its current end, given as a position. It returns when it
	// has received everything.
	read func(ctx context.Context, c *client, l storedLog) error
}

// storedLog is the log of a session whose turn has ended.
type storedLog struct {
	path   string // of the session
	prompt string
	newest int64
}

var protocols = []protocol{
	{"server-sent events", readSSE},
	{"pages of JSON", readPages},
	{"Durable Streams", readDurable},
	{"Durable Streams, live=sse", readDurableLive},
	{"WebSocket", func(ctx context.Context, c *client, l storedLog) error { return readSocket(ctx, c, l) }},
	{"WebSocket, overwinter.blocks.v1", func(ctx context.Context, c *client, l storedLog) error {
		return readSocket(ctx, c, l, "overwinter.blocks.v1")
	}},
	{"WebSocket, overwinter.events.v1", func(ctx context.Context, c *client, l storedLog) error {
		return readSocket(ctx, c, l, "overwinter.events.v1")
	}},
	{"AI SDK, one turn", readChat},
}

// measureProtocols makes readers read the log of one session from its start with each protocol,
// compared with readers of a bare loop.
func measureProtocols(ctx context.Context, b *bench, s *section) (err error) {
	sys, err := b.system(ctx)
	if err != nil {
		return err
	}
	p, err := newProbe(ctx, sys.client, 0)
	if err != nil {
		return err
	}
	defer p.close(context.WithoutCancel(ctx))
	// The blocks alternate in kind, so that no event can be merged with its neighbor.
	script := strings.Repeat("think: word\nword\n", 5*b.options.Burst)
	if err := p.send(ctx, script, &prompts{}); err != nil {
		return err
	}
	log := storedLog{path: "/api/sessions/" + p.session}
	list, err := sys.client.call(ctx, http.MethodGet, log.path+"/prompts", nil)
	if err != nil {
		return err
	}
	log.prompt = list["items"].([]any)[0].(object)["id"].(string)
	end, err := page(ctx, sys.client, log.path+"/events?after=latest")
	if err != nil {
		return err
	}
	log.newest = end.After
	s.note("%d readers at once read a log of %d events from its start to its end; the floor is a program that only writes that many server-sent events to as many readers, "+
		"with net/http, a channel and a flush per event and reader. All readers share the bench's process. AG-UI sends ended turns as one snapshot, so its readers "+
		"follow a turn in progress, from its first word on.", protocolReaders, log.newest)

	loop, err := startEventLoop(ctx)
	if err != nil {
		return fmt.Errorf("bare loop: %w", err)
	}
	defer func() { err = errors.Join(err, loop.stop()) }()
	bare := newClient(loop.url)
	defer bare.close()
	looped, err := gather(ctx, bare, "/events", protocolReaders)
	defer looped.leave()
	if err != nil {
		return fmt.Errorf("readers of the bare loop: %w", err)
	}
	for _, by := range protocols {
		if err := looped.broadcast(ctx, func() error { return loop.say(ctx, int(log.newest), 0) }); err != nil {
			return fmt.Errorf("bare loop: %w", err)
		}
		rate, err := readAll(ctx, sys.client, by, log)
		if err != nil {
			return fmt.Errorf("%s: %w", by.name, err)
		}
		s.compare("deliveries: "+by.name, rate, "bare loop", looped.rate(), atLeast(number(50_000, perSecond)))
	}
	if err := looped.broadcast(ctx, func() error { return loop.say(ctx, int(log.newest), 0) }); err != nil {
		return fmt.Errorf("bare loop: %w", err)
	}
	rate, err := readLive(ctx, sys.client, log, script)
	if err != nil {
		return fmt.Errorf("AG-UI: %w", err)
	}
	s.compare("deliveries: AG-UI, a turn in progress", rate, "bare loop", looped.rate(), atLeast(number(50_000, perSecond)))
	return nil
}

// readLive returns the events per second that AG-UI readers receive together during a turn, from
// its first word on, because AG-UI sends the past as one snapshot.
func readLive(ctx context.Context, c *client, l storedLog, script string) (value, error) {
	ctx, cancel := context.WithTimeout(ctx, waitLimit)
	defer cancel()
	const prompt = "live"
	if _, err := c.call(ctx, http.MethodPost, l.path+"/prompts", object{"id": prompt, "content": "sleep 3s\n" + script}); err != nil {
		return value{}, err
	}
	var first firstTime
	group, reading := errgroup.WithContext(ctx)
	for range protocolReaders {
		group.Go(func() error {
			return readLines(reading, c, l.path+"/ag-ui?message="+prompt, func(line []byte) bool {
				if bytes.Contains(line, []byte(`"delta":"word`)) {
					first.note()
				}
				return bytes.Contains(line, []byte(`"type":"RUN_FINISHED"`))
			})
		})
	}
	if err := group.Wait(); err != nil {
		return value{}, err
	}
	took := first.since()
	end, err := page(ctx, c, l.path+"/events?after=latest")
	return number(float64(protocolReaders*(end.After-l.newest))/took.Seconds(), perSecond), err
}

// firstTime is the first time at which an event was recorded.
type firstTime struct {
	once sync.Once
	at   time.Time
}

func (f *firstTime) note() { f.once.Do(func() { f.at = time.Now() }) }

// since returns the time since then, and ends the recording.
func (f *firstTime) since() time.Duration { return time.Since(f.at) }

// readAll returns the events of the log per second that the readers of a protocol receive together.
func readAll(ctx context.Context, c *client, by protocol, log storedLog) (value, error) {
	ctx, cancel := context.WithTimeout(ctx, waitLimit)
	defer cancel()
	began := time.Now()
	group, ctx := errgroup.WithContext(ctx)
	for range protocolReaders {
		group.Go(func() error { return by.read(ctx, c, log) })
	}
	err := group.Wait()
	return number(float64(protocolReaders*log.newest)/time.Since(began).Seconds(), perSecond), err
}

// get opens a response of 200.
func get(ctx context.Context, c *client, path, accept string) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url+path, nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", accept)
	response, err := c.http.Do(request)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		defer response.Body.Close()
		body, _ := io.ReadAll(io.LimitReader(response.Body, 1<<10))
		return nil, &statusError{http.MethodGet, path, response.StatusCode, string(body)}
	}
	return response, nil
}

// readUntil reads the lines of a response until one contains a text.
func readUntil(ctx context.Context, c *client, path, text string) error {
	return readLines(ctx, c, path, func(line []byte) bool { return bytes.Contains(line, []byte(text)) })
}

// readLines reads the lines of a response until last reports that one is the last.
func readLines(ctx context.Context, c *client, path string, last func(line []byte) bool) error {
	response, err := get(ctx, c, path, "text/event-stream")
	if err != nil {
		return err
	}
	defer response.Body.Close()
	lines := bufio.NewScanner(response.Body)
	lines.Buffer(make([]byte, 64<<10), 16<<20)
	for lines.Scan() {
		if last(lines.Bytes()) {
			return nil
		}
	}
	return errors.Join(fmt.Errorf("the stream of %s ended early", path), lines.Err())
}

func readSSE(ctx context.Context, c *client, l storedLog) error {
	return readUntil(ctx, c, l.path+"/events?after=0", "event: caught_up")
}

func readDurableLive(ctx context.Context, c *client, l storedLog) error {
	return readUntil(ctx, c, l.path+"/stream?offset=-1&live=sse", `"upToDate":true`)
}

func readChat(ctx context.Context, c *client, l storedLog) error {
	return readUntil(ctx, c, l.path+"/ai/stream?message="+url.QueryEscape(l.prompt), "data: [DONE]")
}

// eventsPage is a page of events.
type eventsPage struct {
	Items    []json.RawMessage `json:"items"`
	After    int64             `json:"after"`
	CaughtUp bool              `json:"caughtUp"`
}

func page(ctx context.Context, c *client, path string) (p eventsPage, err error) {
	response, err := get(ctx, c, path, "application/json")
	if err != nil {
		return p, err
	}
	defer response.Body.Close()
	return p, json.NewDecoder(response.Body).Decode(&p)
}

func readPages(ctx context.Context, c *client, l storedLog) error {
	for after := int64(0); after < l.newest; {
		p, err := page(ctx, c, fmt.Sprintf("%s/events?after=%d&limit=1000", l.path, after))
		if err != nil {
			return err
		}
		after = p.After
	}
	return nil
}

func readDurable(ctx context.Context, c *client, l storedLog) error {
	for offset := "-1"; ; {
		response, err := get(ctx, c, l.path+"/stream?offset="+offset, "application/json")
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, response.Body)
		response.Body.Close()
		if err != nil || response.Header.Get("Stream-Up-To-Date") != "" {
			return err
		}
		offset = response.Header.Get("Stream-Next-Offset")
	}
}

func readSocket(ctx context.Context, c *client, l storedLog, protocols ...string) error {
	conn, _, err := websocket.Dial(ctx, c.url+l.path+"/ws?after=0", &websocket.DialOptions{Subprotocols: protocols}) //nolint:bodyclose // the connection has it
	if err != nil {
		return err
	}
	defer conn.CloseNow() //nolint:errcheck // everything was read
	conn.SetReadLimit(16 << 20)
	for {
		_, message, err := conn.Read(ctx)
		if err != nil {
			return err
		}
		if bytes.Contains(message, []byte(`"type":"caught_up"`)) {
			return nil
		}
	}
}
