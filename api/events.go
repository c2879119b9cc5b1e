package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/overwinter-dev/overwinter/internal/eventlog"
	"github.com/overwinter-dev/overwinter/internal/session"
	"github.com/overwinter-dev/overwinter/internal/wire"
)

const lastEventID = "Last-Event-ID"

// The markers of a stream. They have no position: a reader cannot resume from one.
const (
	markerCaughtUp = "caught_up"
	markerGap      = "gap"
	markerEnd      = "end"
)

// chunkBytes is how much of a stream is written under one deadline.
const chunkBytes = 32 << 10

// How often a session that is final is asked whether all of its prompts are over.
const (
	settleMin = 20 * time.Millisecond
	settleMax = time.Second
)

var position = regexp.MustCompile(`^[0-9]{1,18}$`)

// latest is where a stream starts that is to tell only what happens from now on. No log is that long.
const latest = math.MaxInt64

// startPosition is the seq that the stream starts behind, or latest; the header, which a
// client sends when it comes back, goes before the query of its first address.
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

// batch is what one call of EventReader.Next gave.
type batch struct {
	events   []eventlog.Event
	caughtUp bool
	err      error
}

// events streams a session's log. What can be refused is refused before the
// stream starts, so that clients see a status code.
func (s *Server) events(c echo.Context) error {
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
		return session.Faultf(session.CodeUnavailable, "the server is stopping; connect again")
	}

	sess, err := s.cfg.Store.SessionGet(ctx, id)
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
	first := batch{}
	if first.events, first.caughtUp, first.err = reader.Next(ctx); first.err != nil {
		reader.Close()
		return first.err
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
		s.log.InfoContext(ctx, "stream dropped: its reader is slow", slog.String("session_id", id), slog.Int64("seq", st.last))
	case err != nil && ctx.Err() == nil:
		s.log.WarnContext(ctx, "stream aborted", slog.String("session_id", id), slog.Int64("seq", st.last), slog.Any("error", err))
	}
	return nil // the answer has begun; the client comes back with its position
}

// stream is one open stream. Its fields belong to the goroutine that runs it.
type stream struct {
	server    *Server
	sessionID string
	head      bool // without events, for HEAD
	response  *echo.Response
	control   *http.ResponseController
	buffer    bytes.Buffer
	last      int64 // position of the reader: seq of the newest event written
	caughtUp  bool  // the marker has been sent
	final     bool  // the session is known to be final
}

// run writes the stream until the session is over, the client leaves, or ctx is done.
func (st *stream) run(ctx context.Context, reader EventReader, first batch) error {
	cfg := st.server.cfg
	header := st.response.Header()
	header.Set(echo.HeaderContentType, "text/event-stream")
	header.Set(echo.HeaderCacheControl, "no-store")
	header.Set("X-Accel-Buffering", "no")
	if st.head {
		reader.Close()
		return nil
	}
	if err := st.control.SetReadDeadline(time.Time{}); err != nil {
		reader.Close()
		return fmt.Errorf("lift read deadline: %w", err)
	}

	ctx, cancel := context.WithCancel(ctx)
	batches := make(chan batch) // the reader waits for the client: nothing piles up
	done := make(chan struct{})
	go func() {
		defer close(done)
		st.server.pump(ctx, st.sessionID, reader, first, batches)
	}()
	defer func() { cancel(); <-done }()

	heartbeat := time.NewTicker(cfg.Heartbeat)
	defer heartbeat.Stop()
	wait := settleMin
	settle := time.NewTimer(wait)
	settle.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case b := <-batches:
			if err := st.send(b); err != nil {
				return err
			}
			if st.final && st.caughtUp {
				wait = settleMin
				settle.Reset(wait)
			}
		case <-heartbeat.C:
			st.buffer.WriteString(": heartbeat\n\n")
			if err := st.flush(); err != nil {
				return err
			}
		case <-settle.C:
			over, err := st.over(ctx)
			if err != nil {
				return err
			}
			if over {
				if err := st.marker(markerEnd, struct{}{}); err != nil {
					return err
				}
				return st.flush()
			}
			wait = min(2*wait, settleMax)
			settle.Reset(wait)
		}
	}
}

// pump reads batches until ctx is done or the log fails, and closes the reader.
// Where events have been deleted before they were read it goes on behind them.
func (s *Server) pump(ctx context.Context, sessionID string, reader EventReader, b batch, out chan<- batch) {
	defer func() { reader.Close() }()
	for {
		select {
		case out <- b:
		case <-ctx.Done():
			return
		}
		after, ok := behindGap(b.err)
		if b.err != nil && !ok {
			return
		}
		b = batch{}
		if ok {
			var next EventReader
			if next, b.err = s.cfg.Events.Follow(ctx, sessionID, after); b.err != nil {
				continue
			}
			reader.Close()
			reader = next
		}
		b.events, b.caughtUp, b.err = reader.Next(ctx)
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

// over reports whether the session is final, every prompt has its outcome, and
// everything up to there has been sent. The row is asked before the log: what the
// row tells was written together with its events.
func (st *stream) over(ctx context.Context) (bool, error) {
	sess, err := st.server.cfg.Store.SessionGet(ctx, st.sessionID)
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
	events, caughtUp, err := rest.Next(ctx)
	if err != nil {
		return false, err
	}
	return caughtUp && len(events) == 0, nil
}

// send writes a batch and what follows from it.
func (st *stream) send(b batch) error {
	if to, ok := behindGap(b.err); ok {
		if err := st.marker(markerGap, map[string]int64{"from": st.last + 1, "to": to}); err != nil {
			return err
		}
		st.last = to
		return st.flush()
	}
	if b.err != nil {
		return b.err
	}
	for _, e := range b.events {
		if err := st.event(e); err != nil {
			return err
		}
	}
	if b.caughtUp && !st.caughtUp {
		st.caughtUp = true
		if err := st.marker(markerCaughtUp, map[string]int64{"seq": st.last}); err != nil {
			return err
		}
	}
	return st.flush()
}

func (st *stream) event(e eventlog.Event) error {
	fmt.Fprintf(&st.buffer, "id: %d\n", e.Seq)
	if err := st.marker(e.Type, wire.Event(e)); err != nil {
		return err
	}
	st.last = e.Seq
	st.server.metrics.events.Inc()
	if e.Type == wire.EventStatus {
		var data wire.StatusData
		if err := json.Unmarshal(e.Data, &data); err != nil {
			return fmt.Errorf("read status event %d: %w", e.Seq, err)
		}
		st.final = st.final || data.Status.Final()
	}
	return nil
}

// marker writes a type and its data on one line each, the data as the log has it.
func (st *stream) marker(name string, data any) error {
	fmt.Fprintf(&st.buffer, "event: %s\ndata: ", name)
	enc := json.NewEncoder(&st.buffer) // ends in a newline
	enc.SetEscapeHTML(false)
	if err := enc.Encode(data); err != nil {
		return fmt.Errorf("encode %s: %w", name, err)
	}
	st.buffer.WriteByte('\n')
	if st.buffer.Len() >= chunkBytes {
		return st.flush()
	}
	return nil
}

// flush hands what is buffered to the client within WriteTimeout.
func (st *stream) flush() error {
	if st.buffer.Len() == 0 {
		return nil
	}
	if err := st.control.SetWriteDeadline(time.Now().Add(st.server.cfg.WriteTimeout)); err != nil {
		return fmt.Errorf("set write deadline: %w", err)
	}
	if _, err := st.response.Write(st.buffer.Bytes()); err != nil {
		return err
	}
	st.buffer.Reset()
	return st.control.Flush()
}
