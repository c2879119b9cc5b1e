package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/overwinter-dev/overwinter/internal/event"
	"github.com/overwinter-dev/overwinter/internal/eventlog"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/lifecycle"
	"github.com/overwinter-dev/overwinter/internal/resource"
	"github.com/overwinter-dev/overwinter/internal/session"
)

const (
	lifecycleRoute = "/api/events"
	// lifecyclePage is the number of lifecycle events that are read at once.
	lifecyclePage = 100
)

// Starts of a stream of lifecycle events that are not positions.
const (
	fromLatest = "latest"
	fromOldest = "oldest"
)

// lifecycleStore stores the lifecycle events of all sessions, in one order.
type lifecycleStore interface {
	// LifecycleNumber assigns positions to events without one, and reports whether there were any.
	LifecycleNumber(ctx context.Context) (bool, error)
	// LifecycleRead returns events after a position. Errors: *eventlog.PositionGoneError, *eventlog.FuturePositionError.
	LifecycleRead(ctx context.Context, after int64, filter lifecycle.Filter, limit int) (lifecycle.Page, error)
	LifecycleNewest(ctx context.Context) (int64, error)
}

// lifecycleStreams are the streams of lifecycle events.
type lifecycleStreams struct {
	*Server
	store lifecycleStore
	tail  *lifecycleTail
}

// lifecycleEventJSON is a lifecycle event in the form for clients.
type lifecycleEventJSON struct {
	Position int64                `json:"position"`
	Type     lifecycle.Type       `json:"type"`
	At       resource.Time        `json:"at"`
	Session  lifecycleSessionJSON `json:"session"`
	Seq      int64                `json:"seq,omitempty"`
	Data     json.RawMessage      `json:"data,omitempty"`
}

type lifecycleSessionJSON struct {
	ID       string          `json:"id"`
	Agent    string          `json:"agent"`
	Title    string          `json:"title"`
	Status   session.State   `json:"status"`
	Metadata json.RawMessage `json:"metadata"`
}

// lifecycleFilter reads the filter of a request.
func lifecycleFilter(c echo.Context) (f lifecycle.Filter, err error) {
	if text := c.QueryParam("type"); text != "" {
		for name := range strings.SplitSeq(text, ",") {
			t := lifecycle.Type(name)
			if !t.Valid() {
				return f, invalid("type", "must be types of events, separated by commas, out of %s", strings.Join(textsOf(lifecycle.Types), ", "))
			}
			f.Types = append(f.Types, t)
		}
	}
	if f.SessionID = c.QueryParam("sessionId"); f.SessionID != "" && !session.ValidID(session.SessionPrefix, f.SessionID) {
		return f, invalid("sessionId", "must be %s and 32 lower-case hexadecimal digits", session.SessionPrefix)
	}
	if f.Agent, err = filter(c, "agent"); err != nil {
		return f, err
	}
	members, err := metadataFilter(c)
	if len(members) > 0 {
		f.Metadata = map[string]string{}
	}
	for _, m := range members {
		f.Metadata[m.Key] = m.Value
	}
	return f, err
}

// lifecycleStart finds the position after which a stream starts.
func (s *lifecycleStreams) lifecycleStart(c echo.Context) (int64, error) {
	ctx := c.Request().Context()
	name, text := "after", c.QueryParam("after")
	if header := c.Request().Header.Get(lastEventID); header != "" {
		name, text = lastEventID, header
	}
	switch {
	case text == fromLatest || text == "" && !c.QueryParams().Has("after"):
		return s.store.LifecycleNewest(ctx)
	case text == fromOldest && name == "after":
		_, err := s.store.LifecycleRead(ctx, 0, lifecycle.Filter{}, 1)
		if gone, ok := errors.AsType[*eventlog.PositionGoneError](err); ok {
			return gone.First - 1, nil
		}
		return 0, err
	case !position.MatchString(text):
		return 0, invalid(name, "must be the position of an event, latest or oldest")
	}
	return strconv.ParseInt(text, 10, 64)
}

// events streams the lifecycle events of all sessions.
func (s *lifecycleStreams) events(c echo.Context) error {
	wanted, err := lifecycleFilter(c)
	if err != nil {
		return err
	}
	if s.stopping() {
		return errServerStops()
	}
	if err := s.clients.beginStream(); err != nil {
		return err
	}
	defer s.clients.endStream()
	ctx, cancel := context.WithCancel(c.Request().Context())
	defer cancel()
	defer context.AfterFunc(s.streams, cancel)()
	early, done := context.WithTimeout(ctx, s.cfg.RequestTimeout)
	defer done()
	c.SetRequest(c.Request().WithContext(early))
	after, err := s.lifecycleStart(c)
	if err != nil {
		return err
	}
	first, err := s.store.LifecycleRead(early, after, wanted, lifecyclePage)
	if gone, ok := errors.AsType[*eventlog.PositionGoneError](err); ok {
		return failure.Errorf(failure.PositionGone, "events up to %d have been deleted; continue after %d, which after=oldest does too", gone.First-1, gone.First-1)
	}
	if err != nil && s.stopping() {
		return errServerStops()
	}
	if err != nil {
		return err
	}
	s.metrics.streams.Inc()
	defer s.metrics.streams.Dec()
	st := &lifecycleStream{
		stream: &stream{
			server: &streams{Server: s.Server}, head: c.Request().Method == http.MethodHead,
			response: c.Response(), control: http.NewResponseController(c.Response().Writer),
		},
		streams: s, wanted: wanted, position: after,
	}
	err = st.run(ctx, first)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		s.metrics.dropped.Inc()
		s.logger.InfoContext(ctx, "stream dropped: its reader is slow")
	case err != nil && ctx.Err() == nil:
		s.logger.WarnContext(ctx, "stream aborted", slog.Any("error", err))
	}
	return nil // the client reconnects with its position
}

// lifecycleStream is one open stream of lifecycle events.
type lifecycleStream struct {
	*stream
	streams  *lifecycleStreams
	wanted   lifecycle.Filter
	position int64
	caughtUp bool // the marker has been sent
}

// run writes the stream until the client leaves or ctx is done.
func (st *lifecycleStream) run(ctx context.Context, page lifecycle.Page) error {
	if err := st.begin(); err != nil || st.head {
		return err
	}
	tail := st.streams.tail
	tail.enter() //nolint:contextcheck // the loop serves other streams too
	defer tail.leave()
	beat := time.NewTimer(st.server.cfg.Heartbeat)
	defer beat.Stop()
	for {
		if err := st.send(page); err != nil {
			return err
		}
		recent, changed := tail.current() // read before the store, so that new events wake the stream
		var err error
		if !st.caughtUp || st.position < recent.from {
			if page, err = st.streams.store.LifecycleRead(ctx, st.position, st.wanted, lifecyclePage); err != nil {
				return err
			}
		} else {
			page = recent.after(st.position, st.wanted)
		}
		if page.Position > st.position || !st.caughtUp {
			continue
		}
		select {
		case <-changed:
		case <-beat.C:
			beat.Reset(st.server.cfg.Heartbeat)
			// The id without data moves the client's position past events that its filter excludes.
			if err := st.write(fmt.Appendf(nil, ": heartbeat\nid: %d\n\n", st.position)); err != nil {
				return err
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// send writes a page, and a marker if there are currently no more events.
func (st *lifecycleStream) send(page lifecycle.Page) error {
	var frames []byte
	for _, e := range page.Events {
		metadata := e.Session.Metadata
		if len(metadata) == 0 {
			metadata = json.RawMessage(`{}`)
		}
		data, err := json.Marshal(lifecycleEventJSON{
			Position: e.Position, Type: e.Type, At: resource.Time(e.At), Seq: e.Seq, Data: e.Data,
			Session: lifecycleSessionJSON{ID: e.Session.ID, Agent: e.Session.Agent, Title: e.Session.Title, Status: e.Session.Status, Metadata: metadata},
		})
		if err != nil {
			return err
		}
		frames = fmt.Appendf(frames, "id: %d\nevent: %s\ndata: %s\n\n", e.Position, e.Type, data)
	}
	st.position = page.Position
	if page.CaughtUp && !st.caughtUp {
		st.caughtUp = true
		frames = fmt.Appendf(frames, "id: %d\n", st.position)
		frames = marker(frames, event.MarkerCaughtUp, map[string]int64{"position": st.position})
	}
	st.server.metrics.events.Add(float64(len(page.Events)))
	return st.write(frames)
}
