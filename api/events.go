package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/overwinter-dev/overwinter/internal/event"
	"github.com/overwinter-dev/overwinter/internal/eventlog"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// eventStore says whether a session is over.
type eventStore interface {
	SessionGet(ctx context.Context, sessionID string) (session.Session, error)
}

// streams are the routes of events.
type streams struct {
	*Server
	store eventStore
}

const lastEventID = "Last-Event-ID"

// chunkBytes is how much of a stream is written under one deadline.
const chunkBytes = 32 << 10

// How often a session that is final is asked whether all of its prompts are over.
const (
	settleMin = 20 * time.Millisecond
	settleMax = time.Second
)

var position = regexp.MustCompile(`^[0-9]{1,18}$`)

// latest is the start of a stream that sends only events from now on. No log is that long.
const latest = math.MaxInt64

// startPosition is the seq after which the stream starts, or latest; the header, which a client
// sends when it reconnects, overrides the query of its first address.
func startPosition(c echo.Context) (int64, error) {
	name, text := "after", c.QueryParam("after")
	_, given := c.QueryParams()["after"]
	if header := c.Request().Header.Get(lastEventID); header != "" {
		name, text, given = lastEventID, header, true
	}
	if !given {
		return 0, nil
	}
	if name == "after" && text == "latest" {
		return latest, nil
	}
	if !position.MatchString(text) {
		return 0, invalid(name, "must be the seq of an event, or 0")
	}
	return strconv.ParseInt(text, 10, 64)
}

// EventFormat is how events look in streams. The events of Config.Events have it.
func EventFormat() eventlog.Format {
	return eventlog.Format{
		Head: func(dst []byte, e *eventlog.Event) []byte {
			dst = append(dst, "id: "...)
			dst = strconv.AppendInt(dst, e.Seq, 10)
			dst = append(dst, "\nevent: "...)
			dst = append(dst, e.Type...)
			dst = append(dst, "\ndata: "...)
			return event.AppendHead(dst, e)
		},
		Tail: "}\n\n",
		Mark: isFinal,
	}
}

// isFinal reports whether a session is final from an event on.
func isFinal(e *eventlog.Event) bool {
	var data event.StatusData
	return e.Type == event.TypeStatus && json.Unmarshal(e.Data, &data) == nil && data.Status.Final()
}

// events streams a session's log. What can be refused is refused before the
// stream starts, so that clients see a status code.
func (s *streams) events(c echo.Context) error {
	id, err := sessionID(c)
	if err != nil {
		return err
	}
	after, err := startPosition(c)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(c.Request().Context())
	defer cancel()
	defer context.AfterFunc(s.streams, cancel)()
	if s.stopping() {
		return failure.Errorf(failure.Unavailable, "the server is stopping; connect again")
	}

	if err := s.clients.beginStream(); err != nil {
		return err
	}
	defer s.clients.endStream()

	sess, err := s.store.SessionGet(ctx, id)
	if err != nil {
		return err
	}
	reader, err := s.cfg.Events.Follow(ctx, id, after)
	if future, ok := errors.AsType[*eventlog.FuturePositionError](err); ok && after == latest {
		after = future.Newest
		reader, err = s.cfg.Events.Follow(ctx, id, after)
	}
	if err != nil {
		return err
	}
	first, err := reader.Next(ctx, nil)
	if err != nil {
		reader.Close()
		return err
	}

	s.metrics.streams.Inc()
	defer s.metrics.streams.Dec()
	st := &stream{
		server: s, sessionID: id, head: c.Request().Method == http.MethodHead, last: after, final: sess.Status.Final(),
		response: c.Response(), control: http.NewResponseController(c.Response().Writer), // Echo's own Flush drops errors
	}
	err = st.run(ctx, reader, first)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		s.metrics.dropped.Inc()
		s.logger.InfoContext(ctx, "stream dropped: its reader is slow", slog.String("session_id", id), slog.Int64("seq", st.last))
	case err != nil && ctx.Err() == nil:
		s.logger.WarnContext(ctx, "stream aborted", slog.String("session_id", id), slog.Int64("seq", st.last), slog.Any("error", err))
	}
	return nil // the answer has begun; the client comes back with its position
}

// stream is one open stream. Its fields belong to the goroutine that runs it.
type stream struct {
	server    *streams
	sessionID string
	head      bool // without events, for HEAD
	response  *echo.Response
	control   *http.ResponseController
	last      int64 // position of the reader: seq of the newest event written
	caughtUp  bool  // the marker has been sent
	final     bool  // the session is known to be final
}

// run writes the stream until the session is over, the client leaves, or ctx is done. It closes the reader.
// What a stream holds of the log is the batch that it writes; nothing piles up for a slow client.
func (st *stream) run(ctx context.Context, reader EventReader, b eventlog.Batch) error {
	defer func() { reader.Close() }()
	cfg := st.server.cfg
	header := st.response.Header()
	header.Set(echo.HeaderContentType, "text/event-stream")
	header.Set(echo.HeaderCacheControl, "no-store")
	header.Set("X-Accel-Buffering", "no")
	if st.head {
		return nil
	}
	if err := st.control.SetReadDeadline(time.Time{}); err != nil {
		return fmt.Errorf("lift read deadline: %w", err)
	}

	beat := time.Now().Add(cfg.Heartbeat)
	var settle time.Time // when to ask whether all is over; zero for not
	wait := settleMin
	timer := time.NewTimer(cfg.Heartbeat)
	defer timer.Stop()
	for {
		if err := st.send(b); err != nil {
			return err
		}
		if b.Len() > 0 || settle.IsZero() {
			if settle = (time.Time{}); st.final && st.caughtUp {
				wait = settleMin
				settle = time.Now().Add(wait)
				timer.Reset(wait)
			}
		}
		var err error
		b, err = reader.Next(ctx, timer.C)
		if after, ok := behindGap(err); ok {
			// Events have been deleted before they were read: the stream continues after them.
			if err := st.gap(after); err != nil {
				return err
			}
			next, err := cfg.Events.Follow(ctx, st.sessionID, after)
			if err != nil {
				return err
			}
			reader.Close()
			reader, b = next, eventlog.Batch{After: after, Last: after}
			continue
		}
		if err != nil {
			return err
		}
		if b.Len() > 0 || b.CaughtUp {
			continue
		}
		// The timer has fired.
		now := time.Now()
		if !now.Before(beat) {
			beat = now.Add(cfg.Heartbeat)
			if err := st.write([]byte(": heartbeat\n\n")); err != nil {
				return err
			}
		}
		if !settle.IsZero() && !now.Before(settle) {
			ended, err := st.ended(ctx)
			if err != nil {
				return err
			}
			if ended {
				return st.write(marker(nil, event.MarkerEnd, struct{}{}))
			}
			wait = min(2*wait, settleMax)
			settle = time.Now().Add(wait)
		}
		until := time.Until(beat)
		if !settle.IsZero() {
			until = min(until, time.Until(settle))
		}
		timer.Reset(max(until, time.Millisecond))
	}
}

// behindGap is the position in front of the oldest event that is still there,
// where err says that others were deleted.
func behindGap(err error) (after int64, ok bool) {
	gone, ok := errors.AsType[*eventlog.PositionGoneError](err)
	if !ok {
		return 0, false
	}
	return gone.First - 1, true
}

// ended reports whether the session is final, every prompt has its outcome, and everything up to
// there has been sent. The row is read before the log: what the row says was written together with
// its events.
func (st *stream) ended(ctx context.Context) (bool, error) {
	sess, err := st.server.store.SessionGet(ctx, st.sessionID)
	if err != nil {
		return false, err
	}
	if !sess.Status.Final() || sess.Queue.Queued+sess.Queue.Processing > 0 {
		return false, nil
	}
	rest, err := st.server.cfg.Events.Follow(ctx, st.sessionID, st.last)
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

// send writes a batch and what follows from it.
func (st *stream) send(b eventlog.Batch) error {
	if n := b.Len(); n > 0 {
		st.server.metrics.events.Add(float64(n))
		st.last = b.Last
		st.final = st.final || b.Marked
	}
	frames := b.Frames
	if b.CaughtUp && !st.caughtUp {
		st.caughtUp = true
		// The frames belong to other readers too: the marker goes into a copy if there are few.
		if mark := marker(nil, event.MarkerCaughtUp, map[string]int64{"seq": st.last}); len(frames) > chunkBytes {
			if err := st.write(frames); err != nil {
				return err
			}
			frames = mark
		} else {
			frames = slices.Concat(frames, mark)
		}
	}
	return st.write(frames)
}

// gap reports to the client that events up to a position were deleted before they were sent.
func (st *stream) gap(to int64) error {
	frame := marker(nil, event.MarkerGap, map[string]int64{"from": st.last + 1, "to": to})
	st.last = to
	return st.write(frame)
}

// marker appends a message that is no event: its name and its data on one line each.
func marker(dst []byte, name string, data any) []byte {
	encoded, err := json.Marshal(data)
	if err != nil {
		panic(err) // the data of markers are numbers
	}
	return fmt.Appendf(dst, "event: %s\ndata: %s\n\n", name, encoded)
}

// write hands frames to the client, within WriteTimeout for each piece of them.
func (st *stream) write(frames []byte) error {
	if len(frames) == 0 {
		return nil
	}
	for len(frames) > 0 {
		if err := st.control.SetWriteDeadline(time.Now().Add(st.server.cfg.WriteTimeout)); err != nil {
			return fmt.Errorf("set write deadline: %w", err)
		}
		n := min(len(frames), chunkBytes)
		if _, err := st.response.Write(frames[:n]); err != nil {
			return err
		}
		frames = frames[n:]
	}
	return st.control.Flush()
}
