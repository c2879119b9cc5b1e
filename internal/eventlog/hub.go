package eventlog

import "sync"

// hub wakes readers. It holds no events: a wake-up says that there may be more to
// read, and any number of them before the reader looks are one. Publishing never
// waits for a reader.
type hub struct {
	mu      sync.Mutex
	readers map[string]map[*subscription]struct{}
}

// subscription is one reader's place in the hub.
type subscription struct {
	sessionID string
	// wake has room for one: a second wake-up before the first is taken adds nothing.
	wake chan struct{}

	mu       sync.Mutex
	position int64 // the newest seq that the reader has taken
}

func newHub() *hub { return &hub{readers: map[string]map[*subscription]struct{}{}} }

func (h *hub) subscribe(sessionID string, position int64) *subscription {
	s := &subscription{sessionID: sessionID, wake: make(chan struct{}, 1), position: position}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.readers[sessionID] == nil {
		h.readers[sessionID] = map[*subscription]struct{}{}
	}
	h.readers[sessionID][s] = struct{}{}
	return s
}

// unsubscribe may be called again.
func (h *hub) unsubscribe(s *subscription) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.readers[s.sessionID], s)
	if len(h.readers[s.sessionID]) == 0 {
		delete(h.readers, s.sessionID)
	}
}

// publish wakes the readers of the sessions, or with none given every reader.
func (h *hub) publish(sessionIDs []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(sessionIDs) == 0 {
		for _, readers := range h.readers {
			wakeAll(readers)
		}
		return
	}
	for _, id := range sessionIDs {
		wakeAll(h.readers[id])
	}
}

// publishNewer wakes the readers that have not come as far as the positions.
func (h *hub) publishNewer(positions map[string]int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for id, newest := range positions {
		for s := range h.readers[id] {
			if s.at() < newest {
				s.notify()
			}
		}
	}
}

// sessions are those that somebody reads.
func (h *hub) sessions() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	ids := make([]string, 0, len(h.readers))
	for id := range h.readers {
		ids = append(ids, id)
	}
	return ids
}

func wakeAll(readers map[*subscription]struct{}) {
	for s := range readers {
		s.notify()
	}
}

func (s *subscription) notify() {
	select {
	case s.wake <- struct{}{}:
	default: // it is awake already
	}
}

func (s *subscription) at() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.position
}

func (s *subscription) advance(to int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.position = to
}
