package feed

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/overwinter-dev/overwinter/internal/eventlog"
	"github.com/overwinter-dev/overwinter/internal/session"
	"github.com/overwinter-dev/overwinter/internal/sharedread"
)

// Latest is the position of a feed that begins after the newest event. No log is that long.
const Latest = math.MaxInt64

// Intervals of checks whether all prompts of a final session have ended.
const (
	settleMin = 20 * time.Millisecond
	settleMax = time.Second
)

// Log opens readers of sessions' logs.
type Log interface {
	// Follow opens a reader of a session's events after a position. It returns
	// *eventlog.FuturePositionError or *eventlog.PositionGoneError if the position cannot be read
	// from. The reader does not depend on ctx. The caller must close it.
	Follow(ctx context.Context, sessionID string, after int64) (Reader, error)
}

// Reader reads the log of one session. Next must be called by one goroutine at a time.
type Reader interface {
	// Next returns events in order, without gaps or repeats, in the form of Format. At the end of
	// the log it returns once with CaughtUp set, then waits; when the timer fires it returns an
	// empty batch. A batch is valid until the next call. It returns *eventlog.PositionGoneError if
	// the next events are deleted.
	Next(ctx context.Context, timer <-chan time.Time) (eventlog.Batch, error)
	Close()
}

// Sessions provides the state of sessions.
type Sessions interface {
	SessionGet(ctx context.Context, sessionID string) (session.Session, error)
}

// Feeds opens feeds. Those of one session that are opened at the same time share their reads. It is safe for
// concurrent use.
type Feeds struct {
	log      Log
	sessions *sharedread.Reads[session.Session]
}

// New returns the feeds of a log and its sessions.
func New(log Log, sessions Sessions) *Feeds {
	return &Feeds{log: log, sessions: sharedread.New(sessions.SessionGet)}
}

// Gap is a range of events that were deleted before they were read.
type Gap struct {
	From int64 `json:"from"`
	To   int64 `json:"to"`
	// Compacted reports that only text deltas are missing whose complete text is in later events.
	Compacted bool `json:"-"`
}

// Item is the next item of a feed. Without events, CaughtUp, Gap and End it is a beat: there have
// been no events for a while.
type Item struct {
	Events   eventlog.Batch // valid until the next call of Next
	CaughtUp bool           // this item and earlier ones contain all existing events
	Gap      *Gap           // replaces deleted events; the item contains nothing else
	End      bool           // no events will follow; the item contains nothing else
}

// Feed follows one session's log. It must be used by one goroutine.
type Feed struct {
	feeds   *Feeds
	longest time.Duration // without an item
	session session.Session
	reader  Reader
	first   *eventlog.Batch // read by Open

	position int64
	caughtUp bool
	final    bool // the session is known to be final

	beat   time.Time // when to return the next item at the latest
	settle time.Time // when to check for the end; zero for never
	wait   time.Duration
	timer  *time.Timer
}

// Open opens a feed of the events after a position, which returns an item after beat at the latest; 0 means 15 s. All
// refusals happen here. Errors: those of Sessions and Log.
func (fs *Feeds) Open(ctx context.Context, sessionID string, after int64, beat time.Duration) (*Feed, error) {
	if beat <= 0 {
		beat = 15 * time.Second
	}
	sess, err := fs.sessions.Get(ctx, sessionID)
	if err != nil {
		return nil, err
	}
	reader, err := fs.log.Follow(ctx, sessionID, after)
	if future, ok := errors.AsType[*eventlog.FuturePositionError](err); ok && after == Latest {
		after = future.Newest
		reader, err = fs.log.Follow(ctx, sessionID, after)
	}
	if err != nil {
		return nil, err
	}
	first, err := reader.Next(ctx, nil)
	if err != nil {
		reader.Close()
		return nil, err
	}
	return &Feed{
		feeds: fs, longest: beat, session: sess, reader: reader, first: &first, position: after, final: sess.Status.Final(),
		beat: time.Now().Add(beat), wait: settleMin, timer: time.NewTimer(beat),
	}, nil
}

// Session returns the session at the time when the feed was opened. Other feeds share it, so it must not be changed.
func (f *Feed) Session() session.Session { return f.session }

// Position returns the seq of the newest event in the items so far.
func (f *Feed) Position() int64 { return f.position }

// Close ends the feed.
func (f *Feed) Close() {
	f.timer.Stop()
	f.reader.Close()
}

// Next waits for the next item and returns it. Errors: the cause of ctx, session_not_found, those
// of the log.
func (f *Feed) Next(ctx context.Context) (Item, error) {
	for {
		b, err := f.read(ctx)
		if first, ok := beforeGap(err); ok {
			return f.skip(ctx, first)
		}
		if err != nil {
			return Item{}, err
		}
		if b.Dropped {
			f.position = b.Last
			return Item{Gap: &Gap{From: b.After + 1, To: b.Last, Compacted: true}}, nil
		}
		if b.Len() > 0 || b.CaughtUp {
			if item := f.take(b); b.Len() > 0 || item.CaughtUp {
				return item, nil
			}
			continue // a reader that was opened after a gap also reports it
		}
		// The timer has fired.
		now := time.Now()
		if !f.settle.IsZero() && !now.Before(f.settle) {
			ended, err := f.ended(ctx)
			if err != nil {
				return Item{}, err
			}
			if ended {
				return Item{End: true}, nil
			}
			f.wait = min(2*f.wait, settleMax)
			f.settle = time.Now().Add(f.wait)
		}
		due := !now.Before(f.beat)
		if due {
			f.beat = now.Add(f.longest)
		}
		f.rest()
		if due {
			return Item{Events: b}, nil
		}
	}
}

func (f *Feed) read(ctx context.Context) (eventlog.Batch, error) {
	if f.first != nil {
		b := *f.first
		f.first = nil
		return b, nil
	}
	return f.reader.Next(ctx, f.timer.C)
}

// take converts a batch to an item.
func (f *Feed) take(b eventlog.Batch) Item {
	f.position = b.Last
	f.final = f.final || b.Marked
	item := Item{Events: b, CaughtUp: b.CaughtUp && !f.caughtUp}
	f.caughtUp = f.caughtUp || b.CaughtUp
	if b.Len() > 0 || f.settle.IsZero() {
		if f.settle = (time.Time{}); f.final && f.caughtUp {
			f.wait = settleMin
			f.settle = time.Now().Add(f.wait)
			f.rest()
		}
	}
	return item
}

// rest sets the timer to the next due time.
func (f *Feed) rest() {
	until := time.Until(f.beat)
	if !f.settle.IsZero() {
		until = min(until, time.Until(f.settle))
	}
	f.timer.Reset(max(until, time.Millisecond))
}

// skip continues with the oldest remaining event, and returns the gap before it. It reads the
// session again, because the event of its final status may be in the gap.
func (f *Feed) skip(ctx context.Context, after int64) (Item, error) {
	sess, err := f.feeds.sessions.Get(ctx, f.session.ID)
	if err != nil {
		return Item{}, err
	}
	next, err := f.feeds.log.Follow(ctx, f.session.ID, after)
	if err != nil {
		return Item{}, err
	}
	f.reader.Close()
	f.reader = next
	gap := Gap{From: f.position + 1, To: after}
	f.position = after
	f.final = f.final || sess.Status.Final()
	return Item{Gap: &gap}, nil
}

// beforeGap returns the position before the oldest remaining event, if err reports that others were
// deleted.
func beforeGap(err error) (after int64, ok bool) {
	gone, ok := errors.AsType[*eventlog.PositionGoneError](err)
	if !ok {
		return 0, false
	}
	return gone.First - 1, true
}

// ended reports whether the session is final, every prompt has its outcome, and all events up to
// that point have been in items. It reads the row before the log, since a change of the row is
// committed together with its events.
func (f *Feed) ended(ctx context.Context) (bool, error) {
	sess, err := f.feeds.sessions.Get(ctx, f.session.ID)
	if err != nil {
		return false, err
	}
	if !sess.Status.Final() || sess.Queue.Queued+sess.Queue.Processing > 0 {
		return false, nil
	}
	rest, err := f.feeds.log.Follow(ctx, f.session.ID, f.position)
	if err != nil {
		return false, err
	}
	defer rest.Close()
	b, err := rest.Next(ctx, nil)
	if err != nil {
		return false, err
	}
	return b.CaughtUp && b.Len() == 0, nil
}

// Of opens readers with a follower whose format is Format.
func Of(f *eventlog.Follower) Log { return follower{f} }

type follower struct{ *eventlog.Follower }

func (f follower) Follow(ctx context.Context, sessionID string, after int64) (Reader, error) {
	return f.Follower.Follow(ctx, sessionID, after)
}
