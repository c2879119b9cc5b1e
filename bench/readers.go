package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// measureReaders makes many readers follow one session, and the same number follow a bare loop that
// writes server-sent events.
func measureReaders(ctx context.Context, b *bench, s *section) (err error) {
	// In a used system, readers would get memory that the api has kept from earlier parts, and its resident set would not grow.
	if err := b.release(ctx); err != nil {
		return err
	}
	sys, err := b.system(ctx)
	if err != nil {
		return err
	}
	n := b.options.Readers
	s.note("%d readers follow one session, and as many a program that only writes server-sent events to all who listen, with net/http, a channel and a flush per "+
		"event and reader. Both say the same words, in turns: %d words, one every %s, then words without a pause. Latency is from the time in the event, which is that of "+
		"the agent or of the program, until a reader has the event; that of the session includes the link, the commit and the notification. Memory is the growth of the resident set of "+
		"the process for its readers. All readers share the bench's process.", n, wordsPerRound, b.options.Pause)

	p, err := newProbe(ctx, sys.client, 2)
	if err != nil {
		return err
	}
	defer p.close(context.WithoutCancel(ctx))
	one, err := transactionsPerWord(ctx, sys, p, b.options.Pause)
	if err != nil {
		return err
	}

	loop, err := startEventLoop(ctx)
	if err != nil {
		return fmt.Errorf("bare loop: %w", err)
	}
	defer func() { err = errors.Join(err, loop.stop()) }()
	bare := newClient(loop.url)
	defer bare.close()

	apiPID := readProcesses().child(apiCPU, sys.pid())
	apiBefore, loopBefore := residentBytes(apiPID), residentBytes(loop.pid())
	session, err := gather(ctx, sys.client, "/api/sessions/"+p.session+"/events?after=latest", n)
	defer session.leave()
	if err != nil {
		return fmt.Errorf("readers of the session: %w", err)
	}
	looped, err := gather(ctx, bare, "/events", n)
	defer looped.leave()
	if err != nil {
		return fmt.Errorf("readers of the bare loop: %w", err)
	}

	if err := steadyRounds(ctx, p, loop, session, looped, b.options.Pause); err != nil {
		return err
	}
	apiAfter, loopAfter := residentBytes(apiPID), residentBytes(loop.pid())
	many, err := transactionsPerWord(ctx, sys, p, b.options.Pause)
	if err != nil {
		return err
	}
	if err := session.failure(); err != nil {
		return err
	}

	s.compare("event → reader", distribution(&session.delays), "bare loop", distribution(&looped.delays), withinBoth(2))
	s.compare("memory per reader", number((apiAfter-apiBefore)/float64(n), byteSize), "bare loop", number((loopAfter-loopBefore)/float64(n), byteSize), within(2))
	s.compare("transactions in Postgres per word", number(many, count), "with one reader", number(one, count), within(1.1))

	// The blocks alternate in kind, so that no event can be merged with its neighbor.
	pairs := b.options.Burst / 3
	text := strings.Repeat("think: word\nword\n", pairs)
	if err := session.broadcast(ctx, func() error { return p.send(ctx, text, &prompts{}) }); err != nil {
		return fmt.Errorf("burst: %w", err)
	}
	events := int(session.events.Load()) / n
	if err := looped.broadcast(ctx, func() error { return loop.say(ctx, events, 0) }); err != nil {
		return fmt.Errorf("burst of the bare loop: %w", err)
	}
	s.compare(fmt.Sprintf("deliveries in a burst of %d events", events), session.rate(), "bare loop", looped.rate(), atLeast(number(50_000, perSecond)))
	return session.failure()
}

// steadyRounds makes both send the same words at a steady pace, alternately, and measures their
// latency.
func steadyRounds(ctx context.Context, p *probe, loop *eventLoop, session, looped *audience, pause time.Duration) error {
	steady := fmt.Sprintf("slow %s: %s", pause, strings.Repeat("word ", wordsPerRound))
	for round := range 3 {
		for _, a := range []*audience{session, looped} {
			a.latency.Store(nil)
			if round > 0 { // the first round warms up
				a.latency.Store(&a.delays)
			}
		}
		if err := looped.broadcast(ctx, func() error { return loop.say(ctx, wordsPerRound, pause) }); err != nil {
			return fmt.Errorf("bare loop: %w", err)
		}
		if err := session.broadcast(ctx, func() error { return p.send(ctx, steady, &prompts{}) }); err != nil {
			return fmt.Errorf("session: %w", err)
		}
	}
	session.latency.Store(nil)
	return nil
}

const (
	// wordsPerRound is the number of words in one steady round. All readers get a word at the same
	// time, so p99 is that of the slowest word if there are fewer than a hundred.
	wordsPerRound = 60
	// countedWords is the number of words whose transactions are counted.
	countedWords = 60
)

// transactionsPerWord returns the number of database transactions for each word at a steady pace.
func transactionsPerWord(ctx context.Context, sys *system, p *probe, pause time.Duration) (float64, error) {
	before, err := sys.bare.transactions(ctx)
	if err != nil {
		return 0, err
	}
	if err := p.send(ctx, fmt.Sprintf("slow %s: %s", pause, strings.Repeat("word ", countedWords)), &prompts{}); err != nil {
		return 0, err
	}
	after, err := sys.bare.transactions(ctx)
	return float64(after-before) / countedWords, err
}

// residentBytes returns the resident memory of a process in bytes.
func residentBytes(pid int) float64 {
	raw, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/statm")
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(raw))
	if len(fields) < 2 {
		return 0
	}
	pages, _ := strconv.ParseFloat(fields[1], 64) // the kernel writes numbers
	return pages * float64(os.Getpagesize())
}

// audience is a number of readers of one stream that decode as little as possible.
type audience struct {
	size     int
	cancel   context.CancelFunc
	done     sync.WaitGroup
	failed   atomic.Pointer[error]
	delays   samples
	latency  atomic.Pointer[samples] // receives the delays; nil if they are not recorded
	events   atomic.Int64            // delivered since broadcast was called
	ended    atomic.Int64            // readers that have received the end of the turn since then
	first    atomic.Int64            // time of the first delivery of the agent's text, in nanoseconds
	last     atomic.Int64            // and of the end
	received chan struct{}           // gets a token when all readers have received the end
}

// gather returns when n readers are connected and each has received the first data of its stream.
func gather(ctx context.Context, c *client, path string, n int) (*audience, error) {
	streaming, cancel := context.WithCancel(ctx)
	a := &audience{size: n, cancel: cancel, received: make(chan struct{}, 1)} // one call of broadcast at a time
	ready := make(chan struct{}, n)                                           // one token each
	for range n {
		a.done.Go(func() {
			connected := sync.OnceFunc(func() { ready <- struct{}{} })
			err := c.lines(streaming, path, func(data []byte) error {
				connected()
				a.take(data)
				return nil
			})
			if err != nil {
				a.failed.CompareAndSwap(nil, &err)
				connected()
			}
		})
	}
	timeout := time.NewTimer(waitLimit)
	defer timeout.Stop()
	for range n {
		select {
		case <-ready:
		case <-timeout.C:
			return a, fmt.Errorf("not all of %d readers were connected within %s", n, waitLimit)
		case <-ctx.Done():
			return a, ctx.Err()
		}
	}
	return a, a.failure()
}

// take reads only the type and the time of an event.
func (a *audience) take(data []byte) {
	switch kind := string(field(data, "type")); kind {
	case "": // a marker
	case "text_delta":
		arrived := time.Now()
		if into := a.latency.Load(); into != nil {
			if at, err := time.Parse(time.RFC3339Nano, string(field(data, "at"))); err == nil {
				into.add(arrived.Sub(at))
			}
		}
		a.count(arrived)
	case "block_start", "block_complete":
		a.count(time.Now())
	case "turn_end":
		now := time.Now()
		a.count(now)
		if a.ended.Add(1) == int64(a.size) {
			a.last.Store(now.UnixNano())
			a.received <- struct{}{}
		}
	}
}

func (a *audience) count(arrived time.Time) {
	a.events.Add(1)
	a.first.CompareAndSwap(0, arrived.UnixNano())
}

// field returns the value of a string field without escapes.
func field(data []byte, name string) []byte {
	_, rest, _ := bytes.Cut(data, []byte(`"`+name+`":"`))
	value, _, _ := bytes.Cut(rest, []byte(`"`))
	return value
}

// broadcast returns when every reader has received the end of the text that send sends.
func (a *audience) broadcast(ctx context.Context, send func() error) error {
	a.events.Store(0)
	a.ended.Store(0)
	a.first.Store(0)
	if err := send(); err != nil {
		return err
	}
	timeout := time.NewTimer(waitLimit)
	defer timeout.Stop()
	select {
	case <-a.received:
		return nil
	case <-timeout.C:
		return errors.Join(fmt.Errorf("%d of %d readers had everything within %s", a.ended.Load(), a.size, waitLimit), a.failure())
	case <-ctx.Done():
		return ctx.Err()
	}
}

// rate returns the number of events delivered per second.
func (a *audience) rate() value {
	return number(float64(a.events.Load())/time.Duration(a.last.Load()-a.first.Load()).Seconds(), perSecond)
}

func (a *audience) failure() error {
	if err := a.failed.Load(); err != nil {
		return *err
	}
	return nil
}

// leave disconnects all readers.
func (a *audience) leave() {
	a.cancel()
	a.done.Wait()
}

// eventLoop is a process that only writes server-sent events.
type eventLoop struct {
	url     string
	stdin   interface{ Close() error }
	process interface{ Wait() error }
	id      int
}

func (l *eventLoop) pid() int { return l.id }

// startEventLoop returns when the program listens.
func startEventLoop(ctx context.Context) (*eventLoop, error) {
	command := roleCommand(ctx, "events")
	stdin, err := command.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := command.Start(); err != nil {
		return nil, err
	}
	l := &eventLoop{stdin: stdin, process: command, id: command.Process.Pid}
	if _, err := fmt.Fscanln(stdout, &l.url); err != nil {
		return nil, errors.Join(err, l.stop())
	}
	return l, nil
}

// say makes the program write words to all listeners.
func (l *eventLoop) say(ctx context.Context, words int, pause time.Duration) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, fmt.Sprintf("%s/say?words=%d&pause=%s", l.url, words, pause), nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	return response.Body.Close()
}

func (l *eventLoop) stop() error {
	return errors.Join(l.stdin.Close(), l.process.Wait())
}

// serveEvents is the bare loop: it listens on its own port, prints its address, and ends with its
// standard input.
func serveEvents([]string) error {
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // its end ends this process
	if err != nil {
		return err
	}
	var loop listeners
	mux := http.NewServeMux()
	mux.HandleFunc("GET /events", loop.events)
	mux.HandleFunc("POST /say", loop.say)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	go func() {
		var rest [1]byte
		_, _ = os.Stdin.Read(rest[:]) // ends with the bench
		_ = server.Close()
	}()
	if _, err := fmt.Fprintf(os.Stdout, "http://%s\n", listener.Addr()); err != nil {
		return err
	}
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// listeners are the readers of the bare loop.
type listeners struct {
	mu       sync.Mutex
	channels map[chan []byte]struct{}
}

// events writes every message to the caller, until it leaves.
func (l *listeners) events(w http.ResponseWriter, r *http.Request) {
	mine := make(chan []byte, 256) // one slow flush delays no other
	l.mu.Lock()
	if l.channels == nil {
		l.channels = map[chan []byte]struct{}{}
	}
	l.channels[mine] = struct{}{}
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.channels, mine)
	}()
	w.Header().Set("Content-Type", "text/event-stream")
	control := http.NewResponseController(w)
	message := []byte("data: {}\n\n")
	for {
		if _, err := w.Write(message); err != nil {
			return
		}
		if err := control.Flush(); err != nil {
			return
		}
		select {
		case message = <-mine:
		case <-r.Context().Done():
			return
		}
	}
}

// say sends events to all listeners, at the requested pace.
func (l *listeners) say(w http.ResponseWriter, r *http.Request) {
	words, err := strconv.Atoi(r.FormValue("words"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	pause, err := time.ParseDuration(r.FormValue("pause"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	for i := range words {
		if pause > 0 {
			select {
			case <-time.After(pause):
			case <-r.Context().Done():
				return
			}
		}
		kind := "text_delta"
		if i == words-1 {
			kind = "turn_end"
		}
		// It has the length and the fields of a session's event.
		message := fmt.Appendf(nil, "id: %d\nevent: text_delta\ndata: "+
			`{"seq":%d,"type":"%s","sessionId":"ses_01a204a2562275f0940ed8cfaae6f6ca","conversationId":"main","runId":"run_01a204a2562275f0940ed8cfaae6f6ca","at":"%s","data":{"blockId":"0193a5f0-7c7e-7b3e-8f0a-1b2c3d4e5f60","delta":"word "}}`+
			"\n\n", i, i, kind, time.Now().UTC().Format("2006-01-02T15:04:05.000Z"))
		l.mu.Lock()
		for channel := range l.channels {
			select {
			case channel <- message:
			case <-r.Context().Done():
			}
		}
		l.mu.Unlock()
	}
}
