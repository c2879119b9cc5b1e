package api

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/presence"
)

const (
	// presenceRead is the interval at which an api reads the viewers of its clients' sessions, in
	// one statement.
	presenceRead = 2 * time.Second
	// presenceRenew is the interval at which an api renews its clients, in one statement, and
	// presenceLasts how long they stay present without a renewal, for example after the loss of
	// their api.
	presenceRenew = 10 * time.Second
	presenceLasts = 30 * time.Second
	// presenceWait bounds a statement about presence. A client that cannot be stored in time is not
	// refused; other clients see it after the next renewal.
	presenceWait = 2 * time.Second
)

// presenceStore stores the viewers of sessions, for all apis.
type presenceStore interface {
	// PresenceRenew stores clients as present for a limited time.
	PresenceRenew(ctx context.Context, viewers []presence.Viewer, lasts time.Duration) error
	PresenceEnd(ctx context.Context, clients []string) error
	// PresenceRead returns the viewers of sessions. Sessions without viewers may be omitted.
	PresenceRead(ctx context.Context, sessionIDs []string) (map[string]presence.Presence, error)
	PresenceSweep(ctx context.Context) error
}

// rooms holds the WebSockets of each session at this api, and the viewers of these sessions at all
// apis. An http.Server does not wait for hijacked connections, so the shutdown waits for them here.
type rooms struct {
	store  presenceStore
	logger *slog.Logger
	read   time.Duration // presenceRead; less in tests
	wait   time.Duration // presenceWait; more in tests

	mu     sync.Mutex
	rooms  map[string]*room
	left   []string // clients that have left and are still stored
	closed bool
	empty  chan struct{} // closed when the rooms are closed and the last member has left
	// wake has a buffer of one, since the loop handles all departed clients at once.
	wake chan struct{}
}

// room is a session with members. The room with an empty session ID has the clients that watch the
// changes of all sessions.
type room struct {
	members map[*roomMember]struct{}
	present presence.Presence // the last read value
}

// roomMember is one WebSocket in a room.
type roomMember struct {
	viewer presence.Viewer
	rooms  *rooms
	// changed has a buffer of one, since the member reads the current state when it wakes.
	changed chan struct{}
}

func newRooms(store presenceStore, logger *slog.Logger) *rooms {
	return &rooms{
		store: store, logger: logger, read: presenceRead, wait: presenceWait,
		rooms: map[string]*room{}, empty: make(chan struct{}), wake: make(chan struct{}, 1),
	}
}

// enter adds a member to the room of a session; leave removes it.
func (r *rooms) enter(ctx context.Context, viewer presence.Viewer) (*roomMember, error) {
	m := &roomMember{viewer: viewer, rooms: r, changed: make(chan struct{}, 1)}
	if err := r.add(m); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, r.wait)
	defer cancel()
	if err := r.store.PresenceRenew(ctx, []presence.Viewer{viewer}, presenceLasts); err != nil {
		r.failed(ctx, err)
	}
	r.look(ctx, []string{viewer.SessionID})
	return m, nil
}

func (r *rooms) add(m *roomMember) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return failure.Errorf(failure.Unavailable, "the server is stopping; connect again")
	}
	current := r.rooms[m.viewer.SessionID]
	if current == nil {
		current = &room{members: map[*roomMember]struct{}{}}
		r.rooms[m.viewer.SessionID] = current
	}
	if len(current.members) >= maxSessionSockets {
		return failure.Errorf(failure.Unavailable, "%d such WebSockets are open at this server, which is the limit; connect again later", maxSessionSockets)
	}
	current.members[m] = struct{}{}
	return nil
}

// leave removes the member. It is called once.
func (m *roomMember) leave() {
	r := m.rooms
	r.mu.Lock()
	defer r.mu.Unlock()
	current := r.rooms[m.viewer.SessionID]
	if delete(current.members, m); len(current.members) == 0 {
		delete(r.rooms, m.viewer.SessionID)
	}
	r.left = append(r.left, m.viewer.Client)
	select {
	case r.wake <- struct{}{}:
	default: // a wake-up is already pending
	}
	if r.closed && len(r.rooms) == 0 {
		close(r.empty)
	}
}

// present returns the viewers of the session, including this client, which may not have been read
// from the store yet.
func (m *roomMember) present() presence.Presence {
	m.rooms.mu.Lock()
	defer m.rooms.mu.Unlock()
	current := m.rooms.rooms[m.viewer.SessionID]
	p := presence.Presence{Clients: max(current.present.Clients, len(current.members)), Users: slices.Clone(current.present.Users)}
	byID := func(u presence.User, id string) int { return strings.Compare(u.ID, id) }
	if at, found := slices.BinarySearchFunc(p.Users, m.viewer.User.ID, byID); m.viewer.User.ID != "" && !found {
		p.Users = slices.Insert(p.Users, at, m.viewer.User)
	}
	return p
}

// look reads the viewers of sessions, and wakes the members of sessions whose viewers have changed.
func (r *rooms) look(ctx context.Context, sessionIDs []string) {
	if len(sessionIDs) == 0 {
		return
	}
	found, err := r.store.PresenceRead(ctx, sessionIDs)
	if err != nil {
		r.failed(ctx, err)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, id := range sessionIDs {
		current := r.rooms[id]
		if current == nil || current.present.Clients == found[id].Clients && slices.Equal(current.present.Users, found[id].Users) {
			continue
		}
		current.present = found[id]
		for m := range current.members {
			select {
			case m.changed <- struct{}{}:
			default: // a wake-up is already pending
			}
		}
	}
}

func (r *rooms) failed(ctx context.Context, err error) {
	r.logger.DebugContext(ctx, "presence is not up to date", slog.Any("error", err))
}

// viewers returns all members.
func (r *rooms) viewers() (viewers []presence.Viewer, sessionIDs []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(r.rooms)) {
		if id == "" {
			continue // the room of all sessions
		}
		sessionIDs = append(sessionIDs, id)
		for m := range r.rooms[id].members {
			viewers = append(viewers, m.viewer)
		}
	}
	return viewers, sessionIDs
}

// run keeps the store and the rooms up to date until ctx ends.
func (r *rooms) run(ctx context.Context) {
	ticker := time.NewTicker(r.read)
	defer ticker.Stop()
	renewed := time.Now()
	for {
		select {
		case <-ticker.C:
		case <-r.wake:
		case <-ctx.Done():
			return
		}
		r.flush(ctx)
		viewers, sessionIDs := r.viewers()
		ctx, cancel := context.WithTimeout(ctx, r.wait)
		if time.Since(renewed) >= presenceRenew && len(viewers) > 0 {
			renewed = time.Now()
			if err := r.store.PresenceRenew(ctx, viewers, presenceLasts); err != nil {
				r.failed(ctx, err)
			}
			if err := r.store.PresenceSweep(ctx); err != nil {
				r.failed(ctx, err)
			}
		}
		r.look(ctx, sessionIDs)
		cancel()
	}
}

// flush removes departed clients from the store in one statement. If that fails, they expire.
func (r *rooms) flush(ctx context.Context) {
	r.mu.Lock()
	left := r.left
	r.left = nil
	r.mu.Unlock()
	if len(left) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.wait)
	defer cancel()
	if err := r.store.PresenceEnd(ctx, left); err != nil {
		r.failed(ctx, err)
	}
}

// close admits no more members. The returned channel is closed when all members have left. close
// must be called once.
func (r *rooms) close() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	if len(r.rooms) == 0 {
		close(r.empty)
	}
	return r.empty
}
