package postgres

import (
	"context"
	"sync"

	"github.com/overwinter-dev/overwinter/internal/failure"
)

// maxWaiters bounds the calls of this process that wait for a session.
const maxWaiters = 128

// gates admit one call of this process at a time to write to a session. The lock of the session's
// row admits no more anyway, but a call that waits here holds no connection. A session that is
// locked for long, or that many clients write to, thus leaves the pool to other sessions.
type gates struct {
	mu   sync.Mutex
	open map[string]*gate // sessions that calls write to or wait for
}

type gate struct {
	// turn has room for the one call that may write.
	turn  chan struct{}
	calls int // writing or waiting
}

// enter waits until no other call in this process writes to the session. The caller must call
// leave.
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

// busy returns the error for a session that another transaction has locked for too long.
func busy(sessionID string, cause error) error {
	return &failure.Error{
		Code: failure.Unavailable, Message: "session " + sessionID + " is locked by another transaction; try again later", Err: cause,
	}
}
