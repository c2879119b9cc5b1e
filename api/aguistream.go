package api

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/overwinter-dev/overwinter/internal/agui"
	"github.com/overwinter-dev/overwinter/internal/eventlog"
	"github.com/overwinter-dev/overwinter/internal/feed"
	"github.com/overwinter-dev/overwinter/internal/question"
	"github.com/overwinter-dev/overwinter/internal/resource"
	"github.com/overwinter-dev/overwinter/internal/session"
)

const (
	// maxBuilding bounds the snapshots that are collected concurrently.
	maxBuilding = 8
	// snapshotPause is the minimum time between two snapshots of a stream.
	snapshotPause = time.Second
)

// aguiRun is a run of AG-UI. Without a prompt it ends with its snapshot.
type aguiRun struct{ sessionID, threadID, runID, promptID string }

// aguiStream is an open stream of a run.
type aguiStream struct {
	stream
	*aguiRuns
	run      aguiRun
	encoder  *agui.Encoder
	prompt   session.Prompt // state of the prompt after the newest snapshot
	feed     *feed.Feed     // the events after the newest snapshot; nil while a snapshot is made
	position int64          // the newest seq of the closed feeds
}

// stream sends a run to its end. A stream that ends early closes its connection, so that clients
// notice the missing rest.
func (s *aguiRuns) stream(ctx context.Context, c echo.Context, run aguiRun) error {
	st := &aguiStream{
		stream: stream{
			server: &streams{s.Server, s.turns}, head: c.Request().Method == http.MethodHead,
			response: c.Response(), control: http.NewResponseController(c.Response().Writer),
		},
		aguiRuns: s, run: run, encoder: agui.NewEncoder(run.threadID, run.runID, run.promptID),
	}
	defer st.closeFeed()
	frames := agui.AppendSSE(nil, st.encoder.Start())
	snapshot, err := st.begun(ctx)
	if err != nil {
		return err
	}
	s.metrics.streams.Inc()
	defer s.metrics.streams.Dec()
	err = st.follow(ctx, append(frames, snapshot...))
	st.closeFeed()
	attrs := []any{slog.String("session_id", run.sessionID), slog.Int64("seq", st.position)}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, os.ErrDeadlineExceeded):
		s.metrics.dropped.Inc()
		s.logger.InfoContext(ctx, "stream dropped: its reader is slow", attrs...)
	case ctx.Err() == nil:
		s.logger.WarnContext(ctx, "stream aborted", append(attrs, slog.Any("error", err))...)
	}
	panic(http.ErrAbortHandler)
}

// follow writes the given frames, and then the run until it has ended.
func (st *aguiStream) follow(ctx context.Context, frames []byte) error {
	if err := st.begin(); err != nil || st.head {
		return err
	}
	began := time.Now()
	for {
		if err := st.write(frames); err != nil || st.encoder.Complete() {
			return err
		}
		if st.encoder.Stale() {
			if err := pause(ctx, time.Until(began.Add(snapshotPause))); err != nil {
				return err
			}
			began = time.Now()
			var err error
			if frames, err = st.begun(ctx); err != nil {
				return err
			}
			continue
		}
		item, err := st.feed.Next(ctx)
		if err != nil {
			return err
		}
		if frames, err = st.encode(ctx, item); err != nil {
			return err
		}
	}
}

// closeFeed closes the feed, if there is one, and keeps its position.
func (st *aguiStream) closeFeed() {
	if st.feed != nil {
		st.position = st.feed.Position()
		st.feed.Close()
		st.feed = nil
	}
}

// pause waits for a time, or until ctx is done.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// begun returns a snapshot, after which the stream follows the log.
func (st *aguiStream) begun(ctx context.Context) ([]byte, error) {
	select {
	case st.building <- struct{}{}:
		defer func() { <-st.building }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	st.closeFeed()
	for {
		frames, err := st.snapshot(ctx)
		if _, gone := errors.AsType[*eventlog.PositionGoneError](err); !gone { // retention has deleted events after the snapshot
			return frames, err
		}
	}
}

func (st *aguiStream) snapshot(ctx context.Context) ([]byte, error) {
	// The limits of a snapshot are those of its messages. Blocks are larger, except for tool calls,
	// whose input is text in a message.
	cursor, leftOut, err := st.conversationTail(ctx, 2*agui.MaxSnapshotBytes, 2*agui.MaxSnapshotMessages)
	if err != nil {
		return nil, err
	}
	snapshot := agui.NewSnapshot(st.run.promptID, leftOut)
	var seq int64
	for {
		page, next, err := st.conversationPage(ctx, st.conversations, st.run.sessionID, cursor)
		if err != nil {
			return nil, err
		}
		for _, thread := range page.Threads {
			for _, b := range thread.Blocks {
				snapshot.Add(thread.ID, b)
			}
		}
		if seq, cursor = page.Seq, next; next == "" {
			break
		}
	}
	// The prompt is read after the conversation: if its outcome is not in the row yet, a later
	// event has it.
	if st.run.promptID != "" {
		if st.prompt, err = st.turns.PromptGet(ctx, st.run.sessionID, st.run.promptID); err != nil {
			return nil, err
		}
		masker, err := st.cfg.Masks.Masker(ctx)
		if err != nil {
			return nil, err
		}
		snapshot.AddPrompt(masker.Text(st.prompt.Content), st.prompt.RunID != "")
	}
	f, err := st.feeds.Open(ctx, st.run.sessionID, seq, st.cfg.Heartbeat)
	if err != nil {
		return nil, err
	}
	st.feed = f
	return st.encoder.Snapshot(snapshot), nil
}

// conversationTail finds the newest blocks within the time of a request.
func (st *aguiStream) conversationTail(ctx context.Context, bytes int64, limit int) (cursor string, leftOut int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, st.cfg.RequestTimeout)
	defer cancel()
	return st.conversations.ConversationTail(ctx, st.run.sessionID, bytes, limit)
}

// encode returns the frames of the next item.
func (st *aguiStream) encode(ctx context.Context, item feed.Item) ([]byte, error) {
	switch {
	case item.End: // the events of the outcome are not stored any more
		prompt, err := st.turns.PromptGet(ctx, st.run.sessionID, st.run.promptID)
		if err != nil {
			return nil, err
		}
		return agui.AppendSSE(nil, st.encoder.Finish(resource.Prompt(prompt))), nil
	case item.Gap != nil:
		st.encoder.Miss()
		return nil, nil
	case item.Events.Len() == 0 && !item.CaughtUp:
		return []byte(": heartbeat\n\n"), nil
	}
	frames, err := st.events(ctx, item.Events)
	if err != nil || st.encoder.Complete() || st.encoder.Stale() {
		return frames, err
	}
	if item.CaughtUp && (st.run.promptID == "" || st.prompt.Status.Final()) {
		return agui.AppendSSE(frames, st.encoder.Finish(resource.Prompt(st.prompt))), nil
	}
	if st.encoder.Asked() || item.CaughtUp {
		waiting, err := st.waiting(ctx)
		if err != nil {
			return nil, err
		}
		if len(waiting) > 0 {
			frames = agui.AppendSSE(frames, st.encoder.Interrupt(waiting))
		}
	}
	return frames, nil
}

func (st *aguiStream) events(ctx context.Context, b eventlog.Batch) ([]byte, error) {
	st.metrics.events.Add(float64(b.Len()))
	var out []byte
	for seq, line := range feed.Events(b) {
		e, err := feed.Decode(line)
		if err != nil {
			return nil, err
		}
		events, err := st.encoder.Next(e)
		if err != nil { // an event that cannot be encoded is skipped
			st.logger.WarnContext(ctx, "an event is not in the stream of its run", slog.String("session_id", e.SessionID), slog.Int64("seq", seq), slog.Any("error", err))
		}
		out = agui.AppendSSE(out, events)
		if st.encoder.Complete() || st.encoder.Stale() {
			break
		}
	}
	return out, nil
}

// waiting returns the open questions of the session, oldest first.
func (st *aguiStream) waiting(ctx context.Context) ([]resource.QuestionJSON, error) {
	items, _, err := st.questions.store.QuestionList(ctx, st.run.sessionID, question.Open, maxResumed, "")
	if err != nil {
		return nil, err
	}
	masker, err := st.cfg.Masks.Masker(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]resource.QuestionJSON, len(items))
	for i, q := range items {
		q.Asked = q.Asked.Map(masker.Text, masker.JSON)
		out[len(items)-1-i] = resource.Question(q)
	}
	return out, nil
}
