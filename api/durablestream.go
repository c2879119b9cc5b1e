package api

import (
	"context"
	"errors"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/overwinter-dev/overwinter/internal/durablestream"
	"github.com/overwinter-dev/overwinter/internal/eventlog"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/feed"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// durable serves a session's events by the Durable Streams protocol.
func (s *streams) durable(c echo.Context) error {
	id, err := sessionID(c)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(c.Request().Context())
	defer cancel()
	defer context.AfterFunc(s.streams, cancel)()
	if s.stopping() {
		return errServerStops()
	}
	if c.QueryParam("live") != "" {
		if err := s.clients.beginStream(); err != nil {
			return err
		}
		defer s.clients.endStream()
		s.metrics.streams.Inc()
		defer s.metrics.streams.Dec()
	}
	log := &sessionLog{streams: s, id: id}
	handler := durablestream.Handler{
		ReadTimeout: s.cfg.RequestTimeout, LongPoll: s.cfg.LongPoll, Heartbeat: s.cfg.Heartbeat, WriteTimeout: s.cfg.WriteTimeout,
	}
	err = handler.Read(c.Response(), c.Request().WithContext(ctx), durablestream.Stream{ID: id, ContentType: echo.MIMEApplicationJSON, Log: log})
	if c.Response().Committed {
		s.ended(ctx, id, log.position, err)
		return nil // the client reconnects with its offset
	}
	if err != nil && s.stopping() {
		return errServerStops()
	}
	if gone, ok := errors.AsType[*eventlog.PositionGoneError](err); ok {
		gone = log.beginning(gone)
		return failure.Errorf(failure.PositionGone, "events up to %d have been deleted; read the blocks, then the stream from offset=%s",
			gone.First-1, durablestream.Offset(gone.First-1))
	}
	return err
}

func errServerStops() error {
	return failure.Errorf(failure.Unavailable, "the server is stopping; connect again")
}

// sessionLog is a session's log for one request.
type sessionLog struct {
	*streams
	id       string
	position int64 // position of the last event read
	dropped  int64 // the newest event that compaction has dropped
}

// End implements durablestream.Log. It reads the session before the log, so that the log has the
// events up to the session's state.
func (l *sessionLog) End(ctx context.Context) (durablestream.End, error) {
	f, err := l.open(ctx, feed.Latest, 0)
	if err != nil {
		return durablestream.End{}, err
	}
	defer f.Close()
	return durablestream.End{Newest: f.Position(), Closed: isComplete(f.Session())}, nil
}

// isComplete reports whether a session will write no more events.
func isComplete(sess session.Session) bool {
	return sess.Status.Final() && sess.Queue.Queued+sess.Queue.Processing == 0
}

func (l *sessionLog) open(ctx context.Context, after int64, beat time.Duration) (*feed.Feed, error) {
	return l.feeds.Open(ctx, l.id, after, beat)
}

// Follow implements durablestream.Log. The stream starts after the events that compaction has
// dropped, because the protocol supports retention but no gaps, and the messages at an offset must
// never change.
func (l *sessionLog) Follow(ctx context.Context, after int64, beat time.Duration) (durablestream.Reader, error) {
	var err error
	if l.dropped, err = l.store.EventsDropped(ctx, l.id); err != nil {
		return nil, err
	}
	if after < l.dropped {
		return nil, &eventlog.PositionGoneError{First: l.dropped + 1}
	}
	return l.read(ctx, after, beat)
}

// beginning returns the later of the newest deleted event and the newest event that compaction has
// dropped.
func (l *sessionLog) beginning(gone *eventlog.PositionGoneError) *eventlog.PositionGoneError {
	return &eventlog.PositionGoneError{First: max(gone.First, l.dropped+1)}
}

// read opens a reader that returns gaps too.
func (l *sessionLog) read(ctx context.Context, after int64, beat time.Duration) (*sessionReader, error) {
	f, err := l.open(ctx, after, beat)
	if err != nil {
		return nil, err
	}
	return &sessionReader{Feed: f, log: l, final: f.Session().Status.Final()}, nil
}

// sessionReader reads a feed.
type sessionReader struct {
	*feed.Feed
	log      *sessionLog
	messages [][]byte
	final    bool // the session is known to be final
}

// Next implements durablestream.Reader. The protocol has no gaps, so a gap is reported as a deleted
// position.
func (r *sessionReader) Next(ctx context.Context) (durablestream.Batch, error) {
	b, gap, err := r.next(ctx)
	if gap != nil {
		err = &eventlog.PositionGoneError{First: gap.To + 1}
	}
	return b, err
}

// next returns messages or a gap.
func (r *sessionReader) next(ctx context.Context) (durablestream.Batch, *feed.Gap, error) {
	item, err := r.Feed.Next(ctx)
	if err != nil || item.Gap != nil {
		return durablestream.Batch{Last: r.Position()}, item.Gap, err
	}
	b, err := r.batch(ctx, item)
	return b, nil, err
}

func (r *sessionReader) batch(ctx context.Context, item feed.Item) (durablestream.Batch, error) {
	r.log.position = r.Position()
	b := durablestream.Batch{Last: r.Position(), CaughtUp: item.Events.CaughtUp || item.End, Closed: item.End}
	r.messages = r.messages[:0]
	for _, line := range feed.Events(item.Events) {
		r.messages = append(r.messages, line)
	}
	b.Messages = r.messages
	r.log.metrics.events.Add(float64(len(b.Messages)))
	if r.final = r.final || item.Events.Marked; r.final && b.CaughtUp && !b.Closed {
		end, err := r.log.End(ctx)
		if err != nil {
			return durablestream.Batch{}, err
		}
		b.Closed = end.Closed && end.Newest == b.Last
	}
	return b, nil
}
