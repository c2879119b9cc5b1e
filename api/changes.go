package api

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/lifecycle"
	"github.com/overwinter-dev/overwinter/internal/presence"
	"github.com/overwinter-dev/overwinter/internal/socket"
)

// changesRoute is the WebSocket of all sessions.
const changesRoute = "/api/ws"

const (
	// changesEvery is the interval at which an api reads the changed sessions while clients watch
	// them, and the minimum time between two messages to a client.
	changesEvery = 500 * time.Millisecond
	// maxChanged bounds the sessions that a message names. If more have changed, the message
	// reports that any session may have changed.
	maxChanged = 100
	// changesPage is the number of events that are read at once.
	changesPage = 500
)

// changeStore reads the lifecycle events of all sessions.
type changeStore interface {
	// LifecycleRead returns events after a position. An error may report that the position cannot
	// be read from.
	LifecycleRead(ctx context.Context, after int64, filter lifecycle.Filter, limit int) (lifecycle.Page, error)
	LifecycleNewest(ctx context.Context) (int64, error)
}

// changes reads the changed sessions once for all clients of this api, while it has clients.
type changes struct {
	store  changeStore
	logger *slog.Logger
	every  time.Duration // changesEvery; less in tests

	mu       sync.Mutex
	watchers map[*watcher]struct{}
}

// watcher is a client.
type watcher struct {
	ids map[string]struct{}
	all bool
	// wake has a buffer of one, since the client takes all changes at once.
	wake chan struct{}
}

func newChanges(store changeStore, logger *slog.Logger) *changes {
	return &changes{store: store, logger: logger, every: changesEvery, watchers: map[*watcher]struct{}{}}
}

// watch adds a client. Initially, all sessions count as changed for it. stop removes the client.
func (c *changes) watch() (w *watcher, stop func()) {
	w = &watcher{ids: map[string]struct{}{}, wake: make(chan struct{}, 1)}
	w.add(nil)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.watchers[w] = struct{}{}
	return w, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.watchers, w)
	}
}

// add records changed sessions. If none are given, all may have changed. The caller holds the lock,
// unless the watcher is new.
func (w *watcher) add(ids []string) {
	for _, id := range ids {
		w.ids[id] = struct{}{}
	}
	if len(ids) == 0 || len(w.ids) > maxChanged {
		w.all = true
		clear(w.ids)
	}
	select {
	case w.wake <- struct{}{}:
	default: // a wake-up is already pending
	}
}

// take returns the changes since the last call.
func (c *changes) take(w *watcher) socket.Changes {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := socket.Changes{SessionIDs: []string{}, All: w.all}
	if !w.all {
		out.SessionIDs = append(out.SessionIDs, slices.Sorted(maps.Keys(w.ids))...)
	}
	w.all = false
	clear(w.ids)
	return out
}

func (c *changes) add(ids []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for w := range c.watchers {
		w.add(ids)
	}
}

func (c *changes) watched() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.watchers) > 0
}

// run reads until ctx ends. If its position is unknown or lost, all sessions may have changed.
func (c *changes) run(ctx context.Context) {
	ticker := time.NewTicker(c.every)
	defer ticker.Stop()
	position := int64(-1)
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		if !c.watched() {
			position = -1
			continue
		}
		next, err := c.look(ctx, position)
		if err != nil && ctx.Err() == nil {
			c.logger.DebugContext(ctx, "could not read which sessions have changed", slog.Any("error", err))
		}
		position = next
	}
}

// look reads the events after a position, and returns the next position.
func (c *changes) look(ctx context.Context, position int64) (int64, error) {
	if position < 0 {
		newest, err := c.store.LifecycleNewest(ctx)
		if err != nil {
			return -1, err
		}
		c.add(nil)
		return newest, nil
	}
	for {
		page, err := c.store.LifecycleRead(ctx, position, lifecycle.Filter{}, changesPage)
		if failure.CodeOf(err) == failure.Unavailable {
			return position, err
		}
		if err != nil {
			return -1, err
		}
		var ids []string
		for _, e := range page.Events {
			ids = append(ids, e.Session.ID)
		}
		if len(ids) > 0 {
			c.add(ids)
		}
		if position = page.Position; page.CaughtUp {
			return position, nil
		}
	}
}

// all serves the WebSocket of all sessions.
func (s *sockets) all(c echo.Context) error {
	if err := s.upgradable(c.Request()); err != nil {
		return err
	}
	if s.stopping() {
		return failure.Errorf(failure.Unavailable, "the server is stopping; connect again")
	}
	if err := s.clients.beginStream(); err != nil {
		return err
	}
	defer s.clients.endStream()
	member := &roomMember{viewer: presence.Viewer{Client: uuid.NewString()}, rooms: s.rooms, changed: make(chan struct{}, 1)}
	if err := s.rooms.add(member); err != nil {
		return err
	}
	defer member.leave()
	ctx, cancel := s.untilStop(c)
	defer cancel()
	k, err := s.accept(c, socket.BlocksName)
	if err != nil {
		return err
	}
	defer s.clients.released()
	w, stop := s.changes.watch()
	defer stop()
	k.serve(ctx, func(ctx context.Context, tasks *sync.WaitGroup) error { return k.changes(ctx, w, tasks) })
	return nil
}

// changes sends the changed sessions.
func (k *socketConn) changes(ctx context.Context, w *watcher, tasks *sync.WaitGroup) error {
	all := k.server.changes
	beat := time.NewTicker(k.server.cfg.Heartbeat)
	defer beat.Stop()
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		select {
		case <-w.wake:
		case <-beat.C:
			k.pingOnce(ctx, tasks)
			continue
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		select { // simultaneous changes become one message
		case <-pause.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		changed := all.take(w)
		if !changed.All && len(changed.SessionIDs) == 0 {
			pause.Reset(0) // the previous message already had these changes
			continue
		}
		pause.Reset(all.every)
		if err := k.send(ctx, socket.Message{Type: socket.TypeSessionsChanged, Data: changed}); err != nil {
			return err
		}
	}
}
