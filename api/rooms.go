package api

import (
	"sync"

	"github.com/overwinter-dev/overwinter/internal/failure"
)

// rooms counts the WebSockets of each session at this api. An http.Server does not wait for connections that it has handed
// out: whatever stops it waits for them here.
type rooms struct {
	mu      sync.Mutex
	members map[string]int
	closed  bool
	empty   chan struct{} // closed when the rooms are closed and the last member has left
}

func newRooms() *rooms { return &rooms{members: map[string]int{}, empty: make(chan struct{})} }

// enter takes a place in the room of a session, which leave gives back.
func (r *rooms) enter(sessionID string) (leave func(), err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, failure.Errorf(failure.Unavailable, "the server is stopping; connect again")
	}
	if r.members[sessionID] >= maxSessionSockets {
		return nil, failure.Errorf(failure.Unavailable, "the session has %d open WebSockets at this server, which is the limit; connect again later", maxSessionSockets)
	}
	r.members[sessionID]++
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.members[sessionID]--; r.members[sessionID] == 0 {
			delete(r.members, sessionID)
		}
		if r.closed && len(r.members) == 0 {
			close(r.empty)
		}
	}, nil
}

// count is the number of WebSockets of a session.
func (r *rooms) count(sessionID string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.members[sessionID]
}

// close lets no more members in. The channel that it returns is closed when all have left. It is called once.
func (r *rooms) close() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	if len(r.members) == 0 {
		close(r.empty)
	}
	return r.empty
}
