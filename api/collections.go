package api

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/overwinter-dev/overwinter/internal/session"
)

// collections ends the collection of prompts of the mode collect when its time is over, and has the workflow get them. There is
// one timer for each session. What is not ended because the api stops, or was killed, is signalled by the relay of a worker, like a prompt
// whose signal was lost.
type collections struct {
	store   collectStore
	notify  func(ctx context.Context, p session.Prompt)
	timeout time.Duration // of one end
	logger  *slog.Logger

	mu      sync.Mutex
	timers  map[string]*time.Timer
	stopped bool
	running sync.WaitGroup
}

// collectStore ends collections.
type collectStore interface {
	// PromptsCollected ends the collection of prompts of a session if its time is over, and returns the prompt that the workflow is to be
	// notified of, if there is one. Otherwise it returns what is left of the time.
	PromptsCollected(ctx context.Context, sessionID string) (next *session.Prompt, left time.Duration, err error)
}

// add ends the collection of a session after a time, in the place of what was added for the session before.
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

// close ends no collection any more, and returns when those that are being ended have.
func (c *collections) close() {
	c.mu.Lock()
	c.stopped = true
	for _, timer := range c.timers {
		timer.Stop()
	}
	c.mu.Unlock()
	c.running.Wait()
}
