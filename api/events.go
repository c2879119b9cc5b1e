package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/overwinter-dev/overwinter/internal/event"
	"github.com/overwinter-dev/overwinter/internal/feed"
)

// streams are the routes of events.
type streams struct {
	*Server
	store streamStore
}

// streamStore is the store that streams use in addition to the log.
type streamStore interface {
	feed.Sessions
	// EventsDropped returns the position of the newest event of a session that compaction has
	// dropped, or 0.
	EventsDropped(ctx context.Context, sessionID string) (int64, error)
}

const lastEventID = "Last-Event-ID"

// chunkBytes is the number of bytes of a stream that are written with one deadline.
const chunkBytes = 32 << 10

var position = regexp.MustCompile(`^[0-9]{1,18}$`)

// startPosition returns the seq after which the stream starts, or feed.Latest. The header, which a
// client sends when it reconnects, overrides the query.
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
		return feed.Latest, nil
	}
	if !position.MatchString(text) {
		return 0, invalid(name, "must be the seq of an event, or 0")
	}
	return strconv.ParseInt(text, 10, 64)
}

// events streams a session's log. It refuses requests before the stream starts, so that clients get
// a status code.
func (s *streams) events(c echo.Context) error {
	id, err := sessionID(c)
	if err != nil {
		return err
	}
	after, err := startPosition(c)
	if err != nil {
		return err
	}
	limit, wait, err := pollQuery(c)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(c.Request().Context())
	defer cancel()
	defer context.AfterFunc(s.streams, cancel)()
	if s.stopping() {
		return errServerStops()
	}

	if err := s.clients.beginStream(); err != nil {
		return err
	}
	defer s.clients.endStream()
	if wantsPage(c) {
		if err := s.page(ctx, c, id, after, limit, wait); err == nil || !s.stopping() {
			return err
		}
		return errServerStops()
	}

	f, err := s.feeds.Open(ctx, id, after, s.cfg.Heartbeat)
	if err != nil {
		return err
	}
	defer f.Close()

	s.metrics.streams.Inc()
	defer s.metrics.streams.Dec()
	st := &stream{
		server: s, head: c.Request().Method == http.MethodHead,
		response: c.Response(), control: http.NewResponseController(c.Response().Writer), // Echo's own Flush drops errors
	}
	s.ended(ctx, id, f.Position(), st.run(ctx, f))
	return nil // the response has started; the client reconnects with its position
}

// ended records why a stream has ended before its session.
func (s *streams) ended(ctx context.Context, sessionID string, position int64, err error) {
	attrs := []any{slog.String("session_id", sessionID), slog.Int64("seq", position)}
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		s.metrics.dropped.Inc()
		s.logger.InfoContext(ctx, "stream dropped: its reader is slow", attrs...)
	case err != nil && ctx.Err() == nil:
		s.logger.WarnContext(ctx, "stream aborted", append(attrs, slog.Any("error", err))...)
	}
}

// stream is one open stream of server-sent events.
type stream struct {
	server   *streams
	head     bool // without events, for HEAD
	response *echo.Response
	control  *http.ResponseController
}

// run writes the stream until the session has ended, the client disconnects, or ctx is done. A
// stream holds only the batch that it is writing; no events accumulate for a slow client.
func (st *stream) run(ctx context.Context, f *feed.Feed) error {
	if err := st.begin(); err != nil || st.head {
		return err
	}
	for {
		item, err := f.Next(ctx)
		if err != nil {
			return err
		}
		switch {
		case item.End:
			return st.write(marker(nil, event.MarkerEnd, struct{}{}))
		case item.Gap != nil:
			err = st.write(marker(nil, event.MarkerGap, item.Gap))
		case item.Events.Len() == 0 && !item.CaughtUp:
			err = st.write([]byte(": heartbeat\n\n"))
		default:
			err = st.send(item)
		}
		if err != nil {
			return err
		}
	}
}

// begin sets the header, and removes the deadline of the response.
func (st *stream) begin() error {
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
	return nil
}

// send writes events, and a marker if there are currently no more.
func (st *stream) send(item feed.Item) error {
	st.server.metrics.events.Add(float64(item.Events.Len()))
	frames := item.Events.Frames
	if item.CaughtUp {
		// Other readers share the frames, so the marker is appended to a copy if the frames are
		// few.
		if mark := marker(nil, event.MarkerCaughtUp, map[string]int64{"seq": item.Events.Last}); len(frames) > chunkBytes {
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

// marker appends a message that is not an event: its name and its data on one line each.
func marker(dst []byte, name string, data any) []byte {
	encoded, err := json.Marshal(data)
	if err != nil {
		panic(err) // the data of markers are numbers
	}
	return fmt.Appendf(dst, "event: %s\ndata: %s\n\n", name, encoded)
}

// write sends frames to the client, within WriteTimeout for each piece.
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
