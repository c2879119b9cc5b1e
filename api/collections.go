package api

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/overwinter-dev/overwinter/internal/session"
)

// collections ends the collection of prompts of the mode collect at its deadline, and notifies the
// workflow. There is one timer for each session. If the api stops or is killed before the deadline,
// the relay of a worker signals the workflow, as after a lost signal.
type collections struct {
	store   collectStore
	notify  func(ctx context.Context, p session.Prompt)
	timeout time.Duration // timeout of one call that ends a collection
	logger  *slog.Logger

	mu      sync.Mutex
	timers  map[string]*time.Timer
	stopped bool
	running sync.WaitGroup
}

// collectStore ends collections.
type collectStore interface {
	// PromptsCollected ends the collection of prompts of a session if its deadline has passed, and
	// returns the prompt to notify the workflow of, if any. Otherwise it returns the remaining
	// time.
	PromptsCollected(ctx context.Context, sessionID string) (next *session.Prompt, left time.Duration, err error)
}

// add ends the collection of a session after a time. It replaces an earlier timer of the session.
func (c *collections) add(sessionID string, after time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		return
	}
	if old := c.timers[sessionID]; old != nil {
		old.Stop()
	}
	var timer *time.Timer
	timer = time.AfterFunc(after, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.stopped || c.timers[sessionID] != timer {
			return
		}
		delete(c.timers, sessionID)
		c.running.Go(func() { c.end(sessionID) })
	})
	c.timers[sessionID] = timer
}

func (c *collections) end(sessionID string) {
	ctx, cancel := context.WithTimeout(context.Background(), c.timeout)
	defer cancel()
	next, left, err := c.store.PromptsCollected(ctx, sessionID)
	switch {
	case err != nil:
		c.logger.WarnContext(ctx, "could not end the collection of prompts; a relay signals them later", slog.String("session_id", sessionID), slog.Any("error", err))
	case left > 0:
		c.add(sessionID, left)
	case next != nil:
		c.notify(ctx, *next)
	}
}

// close stops all timers, and returns when calls in progress have ended.
func (c *collections) close() {
	c.mu.Lock()
	c.stopped = true
	for _, timer := range c.timers {
		timer.Stop()
	}
	c.mu.Unlock()
	c.running.Wait()
}
