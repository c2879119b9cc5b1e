package api

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"os"

	"github.com/labstack/echo/v4"

	"github.com/overwinter-dev/overwinter/internal/eventlog"
	"github.com/overwinter-dev/overwinter/internal/feed"
	"github.com/overwinter-dev/overwinter/internal/question"
	"github.com/overwinter-dev/overwinter/internal/resource"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// turnStore finds the turns of prompts.
type turnStore interface {
	PromptGet(ctx context.Context, sessionID, promptID string) (session.Prompt, error)
	// PromptAfter returns the position after which the turn of a prompt starts: before its first
	// run, or the newest event if it has no run. Error: prompt_not_found.
	PromptAfter(ctx context.Context, sessionID, promptID string) (int64, error)
	// PromptsPending returns the prompts that have not ended: the running one, and then the waiting
	// ones, in order.
	PromptsPending(ctx context.Context, sessionID string, limit int) ([]string, error)
	// QuestionsOfRuns returns the questions that people were asked in runs of a session, oldest
	// first.
	QuestionsOfRuns(ctx context.Context, sessionID string, runIDs []string) ([]question.Question, error)
	streamStore
}

// turnEncoder encodes the events of one prompt's turn as frames of a stream.
type turnEncoder interface {
	Start() []byte
	Next(e eventlog.Event) ([]byte, error)
	// Gap returns the frames that replace deleted events.
	Gap(gap feed.Gap) []byte
	// Finish ends the stream of a prompt that has its outcome.
	Finish(p resource.PromptJSON, seq int64) []byte
	// Complete reports that the stream is complete.
	Complete() bool
}

// openTurn reserves a stream of a session's turns. The context is done when the server stops;
// release ends the reservation.
func (s *Server) openTurn(c echo.Context) (ctx context.Context, release func(), err error) {
	if s.stopping() {
		return nil, nil, errServerStops()
	}
	if err := s.clients.beginStream(); err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithCancel(c.Request().Context())
	stop := context.AfterFunc(s.streams, cancel)
	return ctx, func() {
		stop()
		cancel()
		s.clients.endStream()
	}, nil
}

// streamTurn sends the turn of a prompt from its start to its end. A stream that ends early closes
// its connection, so that clients notice the missing rest.
func (s *Server) streamTurn(ctx context.Context, c echo.Context, store turnStore, encoder turnEncoder, sessionID, promptID string) error {
	after, err := store.PromptAfter(ctx, sessionID, promptID)
	if err != nil {
		return err
	}
	// The prompt is read after the position: if its outcome is not in the row yet, a later event
	// has it.
	prompt, err := store.PromptGet(ctx, sessionID, promptID)
	if err != nil {
		return err
	}
	frames := encoder.Start()
	f, err := s.feeds.Open(ctx, sessionID, after, s.cfg.Heartbeat)
	for {
		gone, ok := errors.AsType[*eventlog.PositionGoneError](err)
		if !ok {
			break
		}
		frames = append(frames, encoder.Gap(feed.Gap{From: after + 1, To: gone.First - 1})...)
		after = gone.First - 1
		f, err = s.feeds.Open(ctx, sessionID, after, s.cfg.Heartbeat)
	}
	if err != nil {
		return err
	}
	defer f.Close()
	s.metrics.streams.Inc()
	defer s.metrics.streams.Dec()
	st := &turnStream{
		stream: stream{
			server: &streams{s, store}, head: c.Request().Method == http.MethodHead,
			response: c.Response(), control: http.NewResponseController(c.Response().Writer),
		},
		encoder: encoder, prompt: prompt,
	}
	err = st.run(ctx, f, frames)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, os.ErrDeadlineExceeded):
		s.metrics.dropped.Inc()
		s.logger.InfoContext(ctx, "stream dropped: its reader is slow", slog.String("session_id", sessionID), slog.Int64("seq", f.Position()))
	case ctx.Err() == nil:
		s.logger.WarnContext(ctx, "stream aborted", slog.String("session_id", sessionID), slog.Int64("seq", f.Position()), slog.Any("error", err))
	}
	panic(http.ErrAbortHandler)
}

// turnStream is an open stream of one turn.
type turnStream struct {
	stream
	encoder turnEncoder
	prompt  session.Prompt // state of the prompt when the stream was opened
}

// run writes the given frames, and then the stream until the turn has ended.
func (st *turnStream) run(ctx context.Context, f *feed.Feed, frames []byte) error {
	if err := st.begin(); err != nil || st.head {
		return err
	}
	for {
		if err := st.write(frames); err != nil || st.encoder.Complete() {
			return err
		}
		item, err := f.Next(ctx)
		switch {
		case err != nil:
			return err
		case item.End: // the events of its outcome are not stored any more
			frames = st.encoder.Finish(resource.Prompt(st.prompt), f.Position())
		case item.Gap != nil:
			frames = st.encoder.Gap(*item.Gap)
		case item.Events.Len() == 0 && !item.CaughtUp:
			frames = []byte(": heartbeat\n\n")
		default:
			if frames, err = st.encode(ctx, item.Events); err != nil {
				return err
			}
			if item.CaughtUp && !st.encoder.Complete() && st.prompt.Status.Final() {
				frames = append(frames, st.encoder.Finish(resource.Prompt(st.prompt), f.Position())...)
			}
		}
	}
}

// encode returns the encoded frames of events.
func (st *turnStream) encode(ctx context.Context, b eventlog.Batch) ([]byte, error) {
	st.server.metrics.events.Add(float64(b.Len()))
	var out []byte
	for seq, line := range feed.Events(b) {
		e, err := feed.Decode(line)
		if err != nil {
			return nil, err
		}
		frames, err := st.encoder.Next(e)
		if err != nil { // an event that cannot be encoded is skipped
			st.server.logger.WarnContext(ctx, "an event is not in the stream of its turn", slog.String("session_id", e.SessionID), slog.Int64("seq", seq), slog.Any("error", err))
		}
		out = append(out, frames...)
		if st.encoder.Complete() {
			break
		}
	}
	return out, nil
}

// chatBody reads the request of a chat library.
func chatBody(c echo.Context) (*object, error) {
	data, err := readAll(c, maxChatBytes)
	if err != nil {
		return nil, err
	}
	body, _, err := parseBody(data, false)
	return body, err
}

// messageNamed returns the id of the message in the query of a chat library, and whether there is one.
func messageNamed(c echo.Context) (id string, named bool, err error) {
	id, named = c.QueryParam("message"), c.QueryParams().Has("message")
	if named && (id == "" || len(id) > maxChatID) {
		return "", false, invalid("message", "must be 1 to %d characters long", maxChatID)
	}
	return id, named, nil
}
