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

// turnLength is the approximate time that a session of the crowd speaks, under load, before it gets
// its next prompt.
const turnLength = 20 * time.Second

// startsAtOnce bounds the sessions of a crowd that start at the same time.
const startsAtOnce = 16

// crowd is a number of sessions whose agents speak all the time, each with a reader.
type crowd struct {
	words    *wordRecorder
	cancel   context.CancelFunc
	done     chan struct{}
	failed   atomic.Pointer[error]
	client   *client
	starts   chan struct{} // of startsAtOnce
	mu       sync.Mutex
	sessions []string
}

// wordRecorder measures how long words take from the agent to the reader.
type wordRecorder struct {
	pause     time.Duration // between two words of an agent
	recording atomic.Bool
	delay     samples // of every word
	words     atomic.Int64
	events    atomic.Int64
}

// take records the words of an event. An event has the time of its last word; each word before it was
// written one pause earlier than the next.
func (r *wordRecorder) take(e event) {
	if e.Type != "text_delta" || !r.recording.Load() {
		return
	}
	n := e.words()
	r.words.Add(int64(n))
	r.events.Add(1)
	for i := range n {
		r.delay.add(e.arrived.Sub(e.At) + time.Duration(i)*r.pause)
	}
}

// startCrowd returns when every agent speaks. Each pauses between two words, and speaks for about the length of a turn before
// it gets its next prompt.
func startCrowd(ctx context.Context, c *client, size int, pause, turn time.Duration) (*crowd, error) {
	whole := context.WithoutCancel(ctx)
	ctx, cancel := context.WithCancel(ctx)
	g := &crowd{words: &wordRecorder{pause: pause}, cancel: cancel, done: make(chan struct{}), client: c, starts: make(chan struct{}, startsAtOnce)}
	text := fmt.Sprintf("slow %s: %s", pause, strings.Repeat("word ", max(1, int(turn/pause))))
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
	timeout := time.NewTimer(waitLimit)
	defer timeout.Stop()
	for range size {
		select {
		case <-speaking:
			timeout.Reset(waitLimit)
		case <-g.done:
			g.stop(whole)
			return nil, errors.Join(errors.New("a session of the crowd failed"), g.err())
		case <-timeout.C:
			g.stop(whole)
			return nil, fmt.Errorf("not all of %d sessions speak, and no other has begun to within %s", size, waitLimit)
		case <-ctx.Done():
			g.stop(whole)
			return nil, ctx.Err()
		}
	}
	return g, nil
}

// speak makes one session speak until ctx ends. It calls spoken at the first word.
func (g *crowd) speak(ctx context.Context, text string, spoken func()) error {
	select {
	case g.starts <- struct{}{}:
	case <-ctx.Done():
		return nil
	}
	started := sync.OnceFunc(func() { <-g.starts })
	defer started()
	id, err := g.client.create(ctx, "demo")
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
			case "block_start": // the agent has its prompt; its first word may come much later
				started()
			case "text_delta":
				once()
				g.words.take(e)
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

// err is what ended the crowd, if anything.
func (g *crowd) err() error {
	if err := g.failed.Load(); err != nil {
		return *err
	}
	return nil
}

// stop ends the sessions and returns when their sandboxes are terminated. It reports no error,
// because the measurement is complete.
func (g *crowd) stop(ctx context.Context) {
	g.cancel()
	<-g.done
	g.client.stopAll(ctx, g.sessions) //nolint:errcheck // see above
}
