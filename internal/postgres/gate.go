package postgres

import (
	"context"
	"sync"

	"github.com/overwinter-dev/overwinter/internal/failure"
)

// maxWaiters bounds the calls of this process that wait for one session.
const maxWaiters = 128

// gates let one call of this process at a time write to a session. The lock of the session's row
// admits no more anyway; a call that waits here holds no connection, so that a session that is
// locked for long, or that many clients write to, leaves the pool to the others.
type gates struct {
	mu   sync.Mutex
	open map[string]*gate // of the sessions that a call is in or waits for
}

type gate struct {
	// turn has room for the one call that is in.
	turn  chan struct{}
	calls int // in or waiting
}

// enter waits until the session is free in this process. leave must be called.
func (g *gates) enter(ctx context.Context, sessionID string) (leave func(), err error) {
	g.mu.Lock()
	if g.open == nil {
		g.open = map[string]*gate{}
	}
	at := g.open[sessionID]
	if at == nil {
		at = &gate{turn: make(chan struct{}, 1)}
		g.open[sessionID] = at
	}
	if at.calls > maxWaiters {
		g.mu.Unlock()
		return nil, failure.Errorf(failure.Unavailable, "%d requests are waiting for session %s; try again later", maxWaiters, sessionID)
	}
	at.calls++
	g.mu.Unlock()
	select {
	case at.turn <- struct{}{}:
		return func() { <-at.turn; g.left(sessionID, at) }, nil
	case <-ctx.Done():
		g.left(sessionID, at)
		return nil, busy(sessionID, ctx.Err())
	}
}

func (g *gates) left(sessionID string, at *gate) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if at.calls--; at.calls == 0 {
		delete(g.open, sessionID)
	}
}

// busy is the fault of a session that another transaction holds for too long.
func busy(sessionID string, cause error) error {
	return &failure.Error{
		Code: failure.Unavailable, Message: "session " + sessionID + " is locked by another transaction; try again later", Err: cause,
	}
}
