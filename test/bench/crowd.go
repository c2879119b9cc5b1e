package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// turnLength is about how long a session of the crowd speaks before it gets its next prompt.
const turnLength = 20 * time.Second

// crowd is a number of sessions whose agents speak all the time, each with a reader.
type crowd struct {
	lines    *lineRecorder
	cancel   context.CancelFunc
	done     chan struct{}
	failed   atomic.Pointer[error]
	client   *client
	mu       sync.Mutex
	sessions []string
}

// lines are what the words of agents took to their readers.
type lines struct {
	delay   *samples // agent's clock until the reader has it
	events  int
	elapsed time.Duration
}

// lineRecorder counts while it is told to.
type lineRecorder struct {
	recording atomic.Bool
	began     time.Time
	elapsed   time.Duration
	delay     samples
}

func (r *lineRecorder) record(on bool) {
	if on {
		r.began = time.Now()
	} else {
		r.elapsed = time.Since(r.began)
	}
	r.recording.Store(on)
}

func (r *lineRecorder) take(e event) {
	if e.Type == "text_delta" && r.recording.Load() {
		r.delay.add(e.arrived.Sub(e.At))
	}
}

func (r *lineRecorder) result() lines {
	return lines{delay: &r.delay, events: r.delay.n(), elapsed: r.elapsed}
}

// startCrowd returns when every agent speaks.
func startCrowd(ctx context.Context, c *client, size int, pause time.Duration) (*crowd, error) {
	whole := context.WithoutCancel(ctx)
	ctx, cancel := context.WithCancel(ctx)
	g := &crowd{lines: &lineRecorder{}, cancel: cancel, done: make(chan struct{}), client: c}
	text := fmt.Sprintf("slow %s: %s", pause, strings.Repeat("word ", max(1, int(turnLength/pause))))
	speaking := make(chan struct{}, size) // one token each
	group, groupCtx := errgroup.WithContext(ctx)
	for range size {
		group.Go(func() error { return g.speak(groupCtx, text, func() { speaking <- struct{}{} }) })
	}
	go func() {
		defer close(g.done)
		if err := group.Wait(); err != nil {
			g.failed.Store(&err)
		}
	}()
	timeout := time.NewTimer(5 * time.Minute)
	defer timeout.Stop()
	for range size {
		select {
		case <-speaking:
		case <-g.done:
			g.stop(whole)
			return nil, errors.Join(errors.New("the crowd broke up"), g.err())
		case <-timeout.C:
			g.stop(whole)
			return nil, fmt.Errorf("not all of %d sessions spoke within 5 minutes", size)
		}
	}
	return g, nil
}

// speak has one session speak until ctx ends. Spoken is called at its first word.
func (g *crowd) speak(ctx context.Context, text string, spoken func()) error {
	id, err := g.client.create(ctx)
	if err != nil {
		return ignoreEnd(ctx, err)
	}
	g.mu.Lock()
	g.sessions = append(g.sessions, id)
	g.mu.Unlock()
	ended := make(chan struct{}, 1) // a turn; there is one at a time
	ended <- struct{}{}
	once := sync.OnceFunc(spoken)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		return g.client.stream(ctx, id, func(e event) {
			switch e.Type {
			case "text_delta":
				once()
				g.lines.take(e)
			case "turn_end":
				ended <- struct{}{}
			}
		})
	})
	group.Go(func() error {
		for i := 0; ; i++ {
			select {
			case <-ended:
				if err := g.client.prompt(ctx, id, fmt.Sprintf("w%d", i), text); err != nil {
					return ignoreEnd(ctx, err)
				}
			case <-ctx.Done():
				return nil
			}
		}
	})
	return group.Wait()
}

// err is what broke the crowd up, if anything.
func (g *crowd) err() error {
	if err := g.failed.Load(); err != nil {
		return *err
	}
	return nil
}

// stop ends the sessions and returns when their sandboxes are on their way out.
func (g *crowd) stop(ctx context.Context) {
	g.cancel()
	<-g.done
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	var group errgroup.Group
	group.SetLimit(8)
	for _, id := range g.sessions {
		group.Go(func() error { return g.client.command(ctx, id, "stop") })
	}
	group.Wait() //nolint:errcheck // the system is stopped next
}
