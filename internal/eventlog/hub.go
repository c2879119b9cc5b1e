package eventlog

import (
	"slices"
	"sync"
)

// hub wakes the watchers of a session, which read the log themselves. It stores no events: a
// wake-up means that the log has grown, and several ones before it is received count as one.
// Publishing never waits.
type hub struct {
	mu       sync.Mutex
	watchers map[string][]chan struct{}
}

func newHub() *hub { return &hub{watchers: map[string][]chan struct{}{}} }

func (h *hub) watch(sessionID string) chan struct{} {
	// Room for one: a second wake-up before the first is received adds nothing.
	wake := make(chan struct{}, 1)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.watchers[sessionID] = append(h.watchers[sessionID], wake)
	return wake
}

// unwatch may be called more than once.
func (h *hub) unwatch(sessionID string, wake chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	left := slices.DeleteFunc(h.watchers[sessionID], func(w chan struct{}) bool { return w == wake })
	if len(left) == 0 {
		delete(h.watchers, sessionID)
		return
	}
	h.watchers[sessionID] = left
}

// publish wakes the watchers of the sessions, or all if none are given.
func (h *hub) publish(grown []Growth) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(grown) == 0 {
		for _, watchers := range h.watchers {
			wakeAll(watchers)
		}
		return
	}
	for _, g := range grown {
		wakeAll(h.watchers[g.SessionID])
	}
}

func wakeAll(watchers []chan struct{}) {
	for _, wake := range watchers {
		select {
		case wake <- struct{}{}:
		default: // a wake-up is already pending
		}
	}
}
