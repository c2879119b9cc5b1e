package eventlog

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/sharedread"
)

// Source is the log that followers read.
type Source interface {
	// EventsRead fills pages of different sessions with one statement. For each session that exists
	// it calls Bounds and then Add for its events, in order and without gaps, within the bounds of
	// the page; for others it calls Fail. An error means that nothing was read; with the code
	// unavailable a retry may succeed.
	EventsRead(ctx context.Context, pages []*Page) error
	// EventsBounds returns the positions of the oldest and the newest event of a session, or
	// session_not_found.
	EventsBounds(ctx context.Context, sessionID string) (Bounds, error)
	// EventsPositions returns the bounds of the given sessions that exist.
	EventsPositions(ctx context.Context, sessionIDs []string) (map[string]Bounds, error)
	// EventsListen reports commits until ctx ends or its connection is lost, and then returns an
	// error. It calls ready when no later commit can be missed, and changed with the sessions that
	// have grown, or with none for all.
	EventsListen(ctx context.Context, ready func(), changed func(grown []Growth)) error
}

// Growth reports that the log of a session has grown. Events are the new events if the report
// contains them, in order and without gaps; otherwise they must be read.
type Growth struct {
	SessionID string
	Events    []Event
}

// Bounds are the positions of the oldest and the newest event of a session, or 1 and 0 if it has no
// events.
type Bounds struct {
	First, Newest int64
}

// Check returns an error if a position cannot be read from.
func (b Bounds) Check(after int64) error {
	switch {
	case after < b.First-1:
		return &PositionGoneError{First: b.First}
	case after > b.Newest:
		return &FuturePositionError{Newest: b.Newest}
	}
	return nil
}

// PageBytes bounds the data of a page; the event that reaches it is included.
const PageBytes = 256 << 10

const (
	pageEvents = 1024
	// tailReads bounds the concurrent statements that read tails: while they run, reports of
	// commits accumulate for the next one.
	tailReads = 2
	// tailSessions bounds the sessions of one such statement.
	tailSessions = 64
	// minTailPage is the minimum size of each session's page; together they have PageBytes.
	minTailPage = 16 << 10
)

// FollowerOptions configure a follower.
type FollowerOptions struct {
	// Poll is the interval of the query for the positions of all followed sessions, which finds
	// events with lost notifications. Default 1s.
	Poll time.Duration
	// PageEvents bounds the events that are read at a time. Default 1024.
	PageEvents int
	// TailBytes bounds the tail of one session in memory. Default 4 MiB.
	TailBytes int
	// KeepBytes is how much of the tail is kept for longer than Keep. Default 64 KiB.
	KeepBytes int
	// Keep is how long the rest is kept, for readers that are slow or reconnect. Default 10s.
	Keep time.Duration
	// MemoryBytes bounds the tails of all sessions together. Default 64 MiB.
	MemoryBytes int
	// Linger is how long events are kept after the last reader of a session has closed; negative
	// for not at all. Default 30s.
	Linger time.Duration
	// PrefetchBytes bounds the pages that are read ahead for readers at older positions, of all
	// sessions together. A page counts as PageBytes. A reader beyond the bound reads its next page
	// when it needs it. Default 64 MiB.
	PrefetchBytes int
	// CatchUps bounds the readers at older positions that read Postgres concurrently. Default 4.
	CatchUps int
	// Format is the encoding of events for readers. Default: lines of JSON.
	Format Format
	// Logger receives lost connections. Default: nothing is logged.
	Logger *slog.Logger
}

func (o FollowerOptions) withDefaults() FollowerOptions {
	for _, d := range []struct {
		value    *int
		fallback int
	}{
		{&o.PageEvents, pageEvents},
		{&o.TailBytes, 4 << 20},
		{&o.KeepBytes, 64 << 10},
		{&o.MemoryBytes, 64 << 20},
		{&o.PrefetchBytes, 64 << 20},
		{&o.CatchUps, 4},
	} {
		if *d.value == 0 {
			*d.value = d.fallback
		}
	}
	if o.Poll == 0 {
		o.Poll = time.Second
	}
	if o.Keep == 0 {
		o.Keep = 10 * time.Second
	}
	if o.Linger == 0 {
		o.Linger = 30 * time.Second
	}
	if o.Format.Head == nil && o.Format.Tail == "" {
		o.Format = jsonLines
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
// It is safe for concurrent use. Before Start, readers get the events that existed when they began.
type Follower struct {
	source   Source
	bounds   *sharedread.Reads[Bounds]
	options  FollowerOptions
	hub      *hub
	topics   *topics
	catchUps chan struct{}       // one slot for each reader that reads Postgres
	prefetch *semaphore.Weighted // the bytes of pages that are read ahead
	pages    sync.Pool           // of *Page, for readers that are catching up

	ctx       context.Context //nolint:containedctx // Stop ends it, and with it all goroutines
	cancel    context.CancelFunc
	lifecycle sync.Mutex
	started   bool
	stopped   chan struct{} // closed by Stop
	tasks     sync.WaitGroup
}

// NewFollower returns a follower that is not started.
func NewFollower(source Source, options FollowerOptions) *Follower {
	options = options.withDefaults()
	f := &Follower{
		source: source, bounds: sharedread.New(source.EventsBounds), options: options, hub: newHub(), topics: newTopics(options),
		catchUps: make(chan struct{}, options.CatchUps), prefetch: semaphore.NewWeighted(int64(options.PrefetchBytes)),
		stopped: make(chan struct{}),
	}
	f.pages.New = func() any { return NewPage(&f.options.Format, "", 0) }
	f.ctx, f.cancel = context.WithCancel(context.Background())
	return f
}

// Start starts listening, reading and polling. Calls after the first, or after Stop, have no
// effect.
func (f *Follower) Start() {
	f.lifecycle.Lock()
	defer f.lifecycle.Unlock()
	if f.started || isClosed(f.stopped) {
		return
	}
	f.started = true
	f.tasks.Go(func() { f.listen(f.ctx) })
	f.tasks.Go(func() { f.poll(f.ctx) })
	for range tailReads {
		f.tasks.Go(func() { f.readTails(f.ctx) })
	}
}

// Stop ends every reader with ErrFollowerStopped and returns when all goroutines have ended. It may
// be called before Start and more than once.
func (f *Follower) Stop() {
	f.lifecycle.Lock()
	if !isClosed(f.stopped) {
		close(f.stopped)
	}
	f.cancel()
	f.lifecycle.Unlock()
	f.tasks.Wait()
	f.topics.clear()
}

// background runs a task that Stop waits for. It returns false after Stop.
func (f *Follower) background(task func()) bool {
	f.lifecycle.Lock()
	defer f.lifecycle.Unlock()
	if isClosed(f.stopped) {
		return false
	}
	f.tasks.Go(task)
	return true
}

// changed handles the report of a commit.
func (f *Follower) changed(grown []Growth) {
	f.topics.grown(grown)
	f.hub.publish(grown)
}

// listen maintains the listening connection. After a reconnect it reads all tails, to find commits
// that were missed.
func (f *Follower) listen(ctx context.Context) {
	pauses := newPauses()
	for {
		err := f.source.EventsListen(ctx, func() { pauses = newPauses(); f.changed(nil) }, f.changed)
		if ctx.Err() != nil {
			return
		}
		pause, _ := pauses.Next()
		f.options.Logger.WarnContext(ctx, "lost the listening connection; readers poll until it is restored",
			slog.Any("error", err), slog.Duration("backoff", pause))
		if !sleep(ctx, pause) {
			return
		}
	}
}

// poll is the fallback for lost notifications.
func (f *Follower) poll(ctx context.Context) {
	ticker := time.NewTicker(f.options.Poll)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		followed := f.topics.followed()
		if len(followed) == 0 {
			continue
		}
		positions, err := f.source.EventsPositions(ctx, followed)
		if err != nil {
			if ctx.Err() == nil {
				f.options.Logger.WarnContext(ctx, "could not poll positions", slog.Any("error", err))
			}
			continue
		}
		f.topics.polled(followed, positions)
	}
}

// readTails reads the new events of followed sessions, once for all readers in this process.
func (f *Follower) readTails(ctx context.Context) {
	pauses := newPauses()
	reads := tailPages{follower: f}
	var batch []*topic
	for {
		select {
		case <-f.topics.wake:
		case <-ctx.Done():
			return
		}
		batch = f.topics.take(tailSessions, batch[:0])
		if len(batch) == 0 {
			continue
		}
		if unread, err := reads.publish(ctx, batch); err != nil {
			if ctx.Err() != nil {
				return
			}
			f.options.Logger.WarnContext(ctx, "could not read events; retrying", slog.Any("error", err), slog.Int("sessions", len(unread)))
			pause, _ := pauses.Next()
			ok := sleep(ctx, pause)
			for _, t := range unread {
				f.topics.done(t, true)
			}
			if !ok {
				return
			}
			continue
		}
		pauses = newPauses()
		clear(batch)
	}
}

// tailPages reads tails into pages that are reused for the next statement.
type tailPages struct {
	follower  *Follower
	pages     []*Page
	positions []int64 // positions of the tails from which they are read
}

// publish reads the new events of topics with one statement and publishes them. A session that
// cannot be read fails alone; the others are then read without it. The error is one after which a
// retry of the unread topics may succeed, or that of ctx.
func (r *tailPages) publish(ctx context.Context, batch []*topic) (unread []*topic, err error) {
	f := r.follower
	r.positions = r.positions[:0]
	for i, t := range batch {
		if i == len(r.pages) {
			r.pages = append(r.pages, NewPage(&f.options.Format, "", 0))
		}
		t.mu.Lock()
		newest := t.tail.newest
		t.mu.Unlock()
		r.pages[i].Reset(t.sessionID, newest)
		r.pages[i].Limit, r.pages[i].Bytes = f.options.PageEvents, max(minTailPage, PageBytes/len(batch))
		r.positions = append(r.positions, newest)
	}
	err = f.source.EventsRead(ctx, r.pages[:len(batch)])
	switch {
	case err == nil:
		for i, t := range batch {
			f.publish(t, r.pages[i], r.positions[i])
		}
		return nil, nil
	case ctx.Err() != nil || isPassing(err):
		return batch, err
	case len(batch) == 1:
		f.options.Logger.ErrorContext(ctx, "could not read the events of a session", slog.String("session_id", batch[0].sessionID), slog.Any("error", err))
		f.topics.fail(batch[0], err)
		return nil, nil
	}
	for i := range batch {
		if _, err := r.publish(ctx, batch[i:i+1]); err != nil {
			return batch[i:], err
		}
	}
	return nil, nil
}

// publish adds events that were read after a position to the tail and wakes the readers.
func (f *Follower) publish(t *topic, p *Page, after int64) {
	if p.err != nil {
		f.topics.fail(t, p.err)
		return
	}
	// After an empty page there are no more, regardless of the bounds; otherwise it would be read
	// again immediately.
	more := len(p.ends) > 0 && p.last() < p.newest
	t.mu.Lock()
	t.tail.forget(p.first)
	switch {
	case t.tail.newest != after:
		more = true // a reader has repositioned the tail, or a report has extended it
	case len(p.ends) > 0:
		t.tail.append(p)
		t.wake()
	case p.newest > after:
		// All events up to the newest one are deleted or dropped. Readers before it read Postgres,
		// which reports them.
		t.tail.reset(p.newest)
		t.wake()
	}
	t.mu.Unlock()
	f.topics.done(t, more)
}

// Follow returns a reader of all events after a position; 0 for the start. It returns
// *PositionGoneError, *FuturePositionError or session_not_found if the position cannot be followed.
// The caller must close the reader.
func (f *Follower) Follow(ctx context.Context, sessionID string, after int64) (*Reader, error) {
	if isClosed(f.stopped) {
		return nil, ErrFollowerStopped
	}
	// Join the readers first and then read the bounds: a commit in between may cause an unnecessary
	// read of the tail, but is never missed.
	t := f.topics.enter(sessionID)
	bounds, err := f.bounds.Get(ctx, sessionID)
	if err == nil {
		err = bounds.Check(after)
	}
	if err != nil {
		f.topics.leave(t)
		return nil, err
	}
	f.topics.place(t, bounds.First, bounds.Newest)
	return &Reader{follower: f, topic: t, position: after, target: bounds.Newest, closed: make(chan struct{})}, nil
}

// Watch wakes a caller that reads Postgres when a session's log has grown. Several commits before
// the channel is read cause one wake-up. A lost notification causes none. The caller must call
// stop.
func (f *Follower) Watch(sessionID string) (changed <-chan struct{}, stop func()) {
	wake := f.hub.watch(sessionID)
	return wake, func() { f.hub.unwatch(sessionID, wake) }
}

// sleep returns false if ctx ends first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// isPassing reports whether a failed read should be retried.
func isPassing(err error) bool { return failure.CodeOf(err) == failure.Unavailable }
