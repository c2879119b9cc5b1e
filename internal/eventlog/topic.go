package eventlog

import (
	"sync"
	"time"
)

// topic is a followed session in this process: its tail, which is read once for all readers.
type topic struct {
	sessionID string

	mu      sync.Mutex
	tail    tail
	changed chan struct{} // closed and replaced when there is more to read or err is set
	err     error         // why it can no longer be read

	// Guarded by the lock of the topics.
	readers  int
	idle     *time.Timer // removes the topic some time after its last reader has closed
	placed   bool        // the tail has its position
	dirty    bool        // there may be more to read
	pending  bool        // in the queue, or being read
	appended int         // bytes of the tail that are counted in topics.bytes
}

// wake wakes all readers. The caller holds mu.
func (t *topic) wake() {
	close(t.changed)
	t.changed = make(chan struct{})
}

// topics are all followed sessions. Lock order: topics before topic.
type topics struct {
	options FollowerOptions

	mu    sync.Mutex
	byID  map[string]*topic
	queue []*topic // topics to read, in the order in which they grew
	bytes int      // of all tails
	// wake has room for one signal for each reading goroutine: one that finds no work waits again.
	wake chan struct{}
	page *Page // encodes events that arrive with a report
}

func newTopics(o FollowerOptions) *topics {
	ts := &topics{options: o, byID: map[string]*topic{}, wake: make(chan struct{}, tailReads)}
	ts.page = NewPage(&ts.options.Format, "", 0)
	return ts
}

// enter returns the topic of a session for an additional reader. Its tail has no position before
// place.
func (ts *topics) enter(sessionID string) *topic {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	t := ts.byID[sessionID]
	if t == nil {
		t = &topic{sessionID: sessionID, changed: make(chan struct{})}
		ts.byID[sessionID] = t
	}
	t.readers++
	if t.idle != nil {
		t.idle.Stop()
		t.idle = nil
	}
	return t
}

// place compares the tail with the bounds of the session, which were read after enter.
func (ts *topics) place(t *topic, first, newest int64) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	t.mu.Lock()
	behind := newest - t.tail.newest
	// A tail that was not read for a while is restarted rather than caught up.
	if !t.placed || t.readers == 1 && behind > int64(ts.options.PageEvents) {
		t.tail.reset(newest)
		t.wake()
		behind = 0
	}
	t.tail.forget(first)
	t.mu.Unlock()
	ts.account(t)
	t.placed = true
	t.dirty = t.dirty || behind > 0
	ts.enqueue(t)
}

// leave removes a reader. The tail stays for a while, for readers that reconnect.
func (ts *topics) leave(t *topic) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	t.readers--
	if t.readers > 0 || ts.byID[t.sessionID] != t {
		return
	}
	if ts.options.Linger < 0 || t.appended == 0 {
		ts.remove(t)
		return
	}
	var timer *time.Timer
	timer = time.AfterFunc(ts.options.Linger, func() {
		ts.mu.Lock()
		defer ts.mu.Unlock()
		if t.idle == timer {
			ts.remove(t)
		}
	})
	t.idle = timer
}

// remove removes a topic. The caller holds mu.
func (ts *topics) remove(t *topic) {
	if ts.byID[t.sessionID] == t {
		delete(ts.byID, t.sessionID)
	}
	ts.bytes -= t.appended
	t.appended = 0
	if t.idle != nil {
		t.idle.Stop()
		t.idle = nil
	}
}

// fail ends the readers of a topic with an error.
func (ts *topics) fail(t *topic, err error) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	ts.remove(t)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.err = err
	t.tail.reset(t.tail.newest)
	t.wake()
}

// clear removes all topics. Readers are notified separately.
func (ts *topics) clear() {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	for _, t := range ts.byID {
		ts.remove(t)
	}
}

// grown adds the reported events to their topics, and schedules reads of the topics whose events
// are not reported or do not follow; of all topics if no session is given.
func (ts *topics) grown(grown []Growth) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if len(grown) == 0 {
		for _, t := range ts.byID {
			t.dirty = true
			ts.enqueue(t)
		}
		return
	}
	for _, g := range grown {
		if t := ts.byID[g.SessionID]; t != nil && !ts.extend(t, g.Events) {
			t.dirty = true
			ts.enqueue(t)
		}
	}
}

// extend adds reported events to the tail and wakes its readers. It returns false if the topic must
// be read instead, because events are missing between the newest one and those that are reported:
// reports of different writers may arrive in any order. A read in progress is then repeated. The
// caller holds mu.
func (ts *topics) extend(t *topic, events []Event) bool {
	if len(events) == 0 || !t.placed || t.readers == 0 {
		return false
	}
	t.mu.Lock()
	newest, last := t.tail.newest, events[len(events)-1].Seq
	if last <= newest {
		t.mu.Unlock()
		return true
	}
	ts.page.Reset(t.sessionID, newest)
	for _, e := range events {
		if e.Seq > newest {
			ts.page.Add(&e)
		}
	}
	follows := ts.page.After == newest && ts.page.last() == last
	if follows {
		t.tail.append(ts.page)
		t.wake()
	}
	t.mu.Unlock()
	ts.account(t)
	return follows
}

// enqueue schedules a read of a topic if there may be more. The caller holds mu.
func (ts *topics) enqueue(t *topic) {
	// A topic without readers is compared with the log when the next reader enters.
	if !t.dirty || t.pending || !t.placed || t.readers == 0 {
		return
	}
	t.pending = true
	ts.queue = append(ts.queue, t)
	select {
	case ts.wake <- struct{}{}:
	default: // enough signals are pending
	}
}

// take returns the topics that have waited longest, at most most.
func (ts *topics) take(most int, out []*topic) []*topic {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	n := min(most, len(ts.queue))
	for _, t := range ts.queue[:n] {
		t.dirty = false
		out = append(out, t)
	}
	left := copy(ts.queue, ts.queue[n:])
	clear(ts.queue[left:])
	ts.queue = ts.queue[:left]
	if left > 0 {
		select {
		case ts.wake <- struct{}{}:
		default:
		}
	}
	return out
}

// done ends the read of a topic; with more set it is read again, after the others.
func (ts *topics) done(t *topic, more bool) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	ts.account(t)
	t.pending = false
	t.dirty = t.dirty || more
	if ts.byID[t.sessionID] == t {
		ts.enqueue(t)
	}
}

// account counts the memory of the tail, and trims all tails if they exceed their common limit. The
// caller holds mu.
func (ts *topics) account(t *topic) {
	if ts.byID[t.sessionID] != t {
		return
	}
	t.mu.Lock()
	t.tail.trim(ts.options.TailBytes, true)
	ts.bytes += t.tail.bytes - t.appended
	t.appended = t.tail.bytes
	t.mu.Unlock()
	if ts.bytes <= ts.options.MemoryBytes {
		return
	}
	// Well below the limit, so that this is rare.
	share := ts.options.MemoryBytes / 2 / len(ts.byID)
	for _, t := range ts.byID {
		t.mu.Lock()
		t.tail.trim(share, false)
		ts.bytes += t.tail.bytes - t.appended
		t.appended = t.tail.bytes
		t.mu.Unlock()
	}
}

// followed returns the sessions with readers.
func (ts *topics) followed() []string {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	ids := make([]string, 0, len(ts.byID))
	for id, t := range ts.byID {
		if t.readers > 0 && t.placed {
			ids = append(ids, id)
		}
	}
	return ids
}

// polled compares the topics with the positions of their sessions.
func (ts *topics) polled(sessionIDs []string, positions map[string]Bounds) {
	old := time.Now().Add(-ts.options.Keep)
	ts.mu.Lock()
	defer ts.mu.Unlock()
	for _, id := range sessionIDs {
		t := ts.byID[id]
		if t == nil || !t.placed {
			continue
		}
		bounds, ok := positions[id]
		t.mu.Lock()
		if ok {
			t.tail.forget(bounds.First)
		}
		t.tail.age(old, ts.options.KeepBytes)
		behind := !ok || bounds.Newest > t.tail.newest // the next read ends a topic whose session no longer exists
		t.mu.Unlock()
		ts.account(t)
		t.dirty = t.dirty || behind
		ts.enqueue(t)
	}
}
