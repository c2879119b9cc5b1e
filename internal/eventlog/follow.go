package eventlog

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"sync"
	"time"

	"github.com/overwinter-dev/overwinter/internal/session"
)

// Source is where followers read.
type Source interface {
	// EventsPage returns at most limit events after a position, in order and
	// without a gap. It ends with the event that brings their data to PageBytes. A
	// page that reaches neither bound has all there are.
	// *PositionGoneError, *FuturePositionError or session_not_found where there
	// is nothing to read from.
	EventsPage(ctx context.Context, sessionID string, after int64, limit int) ([]Event, error)
	// EventsPositions returns the newest seq of each of the sessions.
	EventsPositions(ctx context.Context, sessionIDs []string) (map[string]int64, error)
	// EventsListen tells of commits until ctx ends or its connection is lost, and
	// returns an error then. It calls ready when nothing can be missed from then
	// on, and changed with the sessions that have grown, or none for all.
	EventsListen(ctx context.Context, ready func(), changed func(sessionIDs []string)) error
}

// PageBytes is where a page of events ends: it has less data than that, or one event
// more than would fit.
const PageBytes = 1 << 20

// isFull reports whether there may be more after a page.
func isFull(page []Event, limit int) bool {
	bytes := 0
	for _, e := range page {
		bytes += len(e.Data)
	}
	return len(page) >= limit || bytes >= PageBytes
}

// FollowerOptions are the choices of a follower.
type FollowerOptions struct {
	// Poll is how often the positions of all followed sessions are asked for, in
	// one query, in case a notification was lost. Default 1s.
	Poll time.Duration
	// Page is how many events are read at once. Default 256.
	Page int
	// Logger gets lost connections. Default: nothing is logged.
	Logger *slog.Logger
}

func (o FollowerOptions) withDefaults() FollowerOptions {
	if o.Poll == 0 {
		o.Poll = time.Second
	}
	if o.Page == 0 {
		o.Page = 256
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

// ErrFollowerStopped means that the follower is stopped: the process is about to end.
var ErrFollowerStopped = errors.New("eventlog: the follower is stopped")

// ErrReaderClosed means that the reader was closed.
var ErrReaderClosed = errors.New("eventlog: the reader is closed")

// Follower lets any number of readers follow logs over one listening connection.
// It is safe for concurrent use. Before Start readers can read what is there, but
// nothing wakes them.
type Follower struct {
	source  Source
	options FollowerOptions
	hub     *hub

	lifecycle sync.Mutex
	cancel    context.CancelFunc // nil before Start
	stopped   chan struct{}      // closed by Stop
	tasks     sync.WaitGroup
}

// NewFollower returns a follower that is not started.
func NewFollower(source Source, options FollowerOptions) *Follower {
	return &Follower{source: source, options: options.withDefaults(), hub: newHub(), stopped: make(chan struct{})}
}

// Start begins to listen and to poll. Calls after the first, or after Stop,
// change nothing.
func (f *Follower) Start() {
	f.lifecycle.Lock()
	defer f.lifecycle.Unlock()
	if f.cancel != nil || isClosed(f.stopped) {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	f.cancel = cancel
	f.tasks.Go(func() { f.listen(ctx) })
	f.tasks.Go(func() { f.poll(ctx) })
}

// Stop ends every reader with ErrFollowerStopped and returns when nothing runs
// any more. It may be called before Start and again.
func (f *Follower) Stop() {
	f.lifecycle.Lock()
	if !isClosed(f.stopped) {
		close(f.stopped)
	}
	if f.cancel != nil {
		f.cancel()
	}
	f.lifecycle.Unlock()
	f.tasks.Wait()
}

// listen holds the one listening connection. What was committed while there was
// none is found by waking everybody once there is one again.
func (f *Follower) listen(ctx context.Context) {
	backoff := minBackoff
	for {
		err := f.source.EventsListen(ctx,
			func() { backoff = minBackoff; f.hub.publish(nil) },
			f.hub.publish)
		if ctx.Err() != nil {
			return
		}
		f.options.Logger.WarnContext(ctx, "the listening connection is lost; readers poll until there is a new one",
			slog.Any("error", err), slog.Duration("backoff", backoff))
		timer := time.NewTimer(backoff)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
		backoff = min(2*backoff, maxBackoff)
	}
}

// poll is the net below the notifications.
func (f *Follower) poll(ctx context.Context) {
	ticker := time.NewTicker(f.options.Poll)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		followed := f.hub.sessions()
		if len(followed) == 0 {
			continue
		}
		positions, err := f.source.EventsPositions(ctx, followed)
		if err != nil {
			if ctx.Err() == nil {
				f.options.Logger.WarnContext(ctx, "positions could not be polled", slog.Any("error", err))
			}
			continue
		}
		f.hub.publishNewer(positions)
	}
}

// Follow returns a reader of everything behind a position; 0 is from the start.
// *PositionGoneError, *FuturePositionError or session_not_found say that there is
// nothing to follow. The reader must be closed.
func (f *Follower) Follow(ctx context.Context, sessionID string, after int64) (*Reader, error) {
	if isClosed(f.stopped) {
		return nil, ErrFollowerStopped
	}
	// First the place in the hub, then the look: what is committed in between
	// wakes the reader for nothing, rather than not at all.
	r := &Reader{follower: f, closed: make(chan struct{}), sub: f.hub.subscribe(sessionID, after)}
	first, err := f.source.EventsPage(ctx, sessionID, after, f.options.Page)
	if err != nil {
		r.Close()
		return nil, err
	}
	r.page, r.more = first, isFull(first, f.options.Page)
	r.fetched = true
	return r, nil
}

// Watch wakes whoever has something to look up in Postgres when a session's log has grown. Several
// commits before the channel is read are one wake-up. It is not a net: a lost notification is not
// made up for. stop must be called.
func (f *Follower) Watch(sessionID string) (changed <-chan struct{}, stop func()) {
	sub := f.hub.subscribe(sessionID, math.MaxInt64) // never behind, so that no poll wakes it
	return sub.wake, func() { f.hub.unsubscribe(sub) }
}

// Reader follows one session's log. Next is for one goroutine; Close for any.
type Reader struct {
	follower *Follower
	sub      *subscription

	page     []Event // fetched and not yet returned
	fetched  bool    // page is to be returned, even if empty
	more     bool    // there is more to read right away
	caughtUp bool    // the reader has been told so

	closing sync.Once
	closed  chan struct{}
}

// Next returns the next events, in order, each once. CaughtUp says that these
// were all there were when they were read; it is true at the first time with or
// without events, and from then on Next waits until there are some. When Postgres
// cannot be reached it tries again until ctx ends. Errors: the cause of ctx,
// *PositionGoneError when retention has overtaken the reader, ErrFollowerStopped,
// ErrReaderClosed.
func (r *Reader) Next(ctx context.Context) (events []Event, caughtUp bool, err error) {
	backoff := minBackoff
	for {
		if err := r.ended(ctx); err != nil {
			return nil, false, err
		}
		if !r.fetched && !r.more {
			if err := r.wait(ctx, nil); err != nil {
				return nil, false, err
			}
		}
		if !r.fetched {
			switch err := r.fetch(ctx); {
			case err == nil:
			case session.CodeOf(err) == session.CodeUnavailable && ctx.Err() == nil:
				// It is read again after a while, or when somebody says that there is more.
				r.more = true
				timer := time.NewTimer(backoff)
				waitErr := r.wait(ctx, timer.C)
				timer.Stop()
				if waitErr != nil {
					return nil, false, waitErr
				}
				backoff = min(2*backoff, maxBackoff)
				continue
			case ctx.Err() != nil:
				return nil, false, context.Cause(ctx)
			default:
				return nil, false, err
			}
		}
		events, r.page, r.fetched = r.page, nil, false
		if len(events) > 0 {
			r.sub.advance(events[len(events)-1].Seq)
		}
		if r.more {
			return events, false, nil
		}
		if len(events) > 0 || !r.caughtUp {
			r.caughtUp = true
			return events, true, nil
		}
	}
}

func (r *Reader) fetch(ctx context.Context) error {
	limit := r.follower.options.Page
	page, err := r.follower.source.EventsPage(ctx, r.sub.sessionID, r.sub.at(), limit)
	if err != nil {
		return err
	}
	r.page, r.fetched, r.more = page, true, isFull(page, limit)
	return nil
}

// wait returns when there may be more to read, or when the timer fires.
func (r *Reader) wait(ctx context.Context, timer <-chan time.Time) error {
	select {
	case <-r.sub.wake:
	case <-timer:
	case <-ctx.Done():
	case <-r.closed:
	case <-r.follower.stopped:
	}
	return r.ended(ctx)
}

func (r *Reader) ended(ctx context.Context) error {
	switch {
	case isClosed(r.closed):
		return ErrReaderClosed
	case isClosed(r.follower.stopped):
		return ErrFollowerStopped
	}
	return context.Cause(ctx)
}

// Position is the newest seq that Next has returned.
func (r *Reader) Position() int64 { return r.sub.at() }

// Close gives the reader's place up and ends a Next that waits. It may be called again.
func (r *Reader) Close() {
	r.closing.Do(func() {
		close(r.closed)
		r.follower.hub.unsubscribe(r.sub)
	})
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
