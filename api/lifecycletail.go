package api

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/overwinter-dev/overwinter/internal/lifecycle"
)

// lifecycleTail reads new lifecycle events once for all open streams of this api, while any are
// open. It holds the newest events; a stream with another position reads the store.
//
// It also assigns positions to events, as workers do, because no other process does so while no
// worker runs.
type lifecycleTail struct {
	store  lifecycleStore
	every  time.Duration
	logger *slog.Logger

	mu      sync.Mutex
	streams int
	stop    func() // ends the loop and waits for it
	recent  lifecycleRange
	changed chan struct{} // closed when recent has new events
}

// lifecycleRange has the events after one position up to another.
type lifecycleRange struct {
	from, to int64
	events   []lifecycle.Event
}

// after returns the events after a position that a filter selects. The position must not precede
// the range.
func (r lifecycleRange) after(position int64, wanted lifecycle.Filter) lifecycle.Page {
	page := lifecycle.Page{Position: max(position, r.to), CaughtUp: true}
	for _, e := range r.events {
		if e.Position > position && wanted.Selects(e) {
			page.Events = append(page.Events, e)
		}
	}
	return page
}

// enter counts a stream, and starts reading with the first one.
func (t *lifecycleTail) enter() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.streams++; t.streams > 1 {
		return
	}
	t.recent, t.changed = lifecycleRange{from: -1, to: -1}, make(chan struct{})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	t.stop = func() { cancel(); <-done }
	go func() {
		defer close(done)
		t.follow(ctx)
	}()
}

// leave removes a stream, and stops reading with the last one.
func (t *lifecycleTail) leave() {
	t.mu.Lock()
	t.streams--
	stop := t.stop
	last := t.streams == 0
	t.mu.Unlock()
	if last {
		stop()
	}
}

// current returns the newest events, and a channel that is closed when newer events arrive.
func (t *lifecycleTail) current() (lifecycleRange, <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.recent, t.changed
}

func (t *lifecycleTail) publish(r lifecycleRange) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.recent = r
	close(t.changed)
	t.changed = make(chan struct{})
}

// forget releases events that all streams have had time to read.
func (t *lifecycleTail) forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.recent = lifecycleRange{from: t.recent.to, to: t.recent.to}
}

func (t *lifecycleTail) follow(ctx context.Context) {
	ticker := time.NewTicker(t.every)
	defer ticker.Stop()
	position, failing := int64(-1), false
	for {
		next, err := t.pass(ctx, position)
		if err != nil && ctx.Err() == nil && !failing {
			t.logger.WarnContext(ctx, "could not read lifecycle events; retrying", slog.Any("error", err))
		}
		position, failing = next, err != nil
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

// pass reads new events after a position, and returns the next position. It starts at the newest
// event; streams then wake and read earlier events themselves.
func (t *lifecycleTail) pass(ctx context.Context, position int64) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if _, err := t.store.LifecycleNumber(ctx); err != nil {
		return position, err
	}
	if position < 0 {
		newest, err := t.store.LifecycleNewest(ctx)
		if err != nil {
			return position, err
		}
		t.publish(lifecycleRange{from: newest, to: newest})
		return newest, nil
	}
	for {
		page, err := t.store.LifecycleRead(ctx, position, lifecycle.Filter{}, lifecyclePage)
		if err != nil {
			return -1, err
		}
		if page.Position == position {
			t.forget()
			return position, nil
		}
		t.publish(lifecycleRange{from: position, to: page.Position, events: page.Events})
		if position = page.Position; page.CaughtUp {
			return position, nil
		}
	}
}
