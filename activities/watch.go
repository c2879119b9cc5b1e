package activities

import (
	"context"
	"log/slog"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/overwinter-dev/overwinter/internal/eventlog"
	"github.com/overwinter-dev/overwinter/internal/metrics"
	"github.com/overwinter-dev/overwinter/internal/run"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// watching measures and logs commits: ends of turns, transitions and questions. No log line
// contains the text of a prompt, an answer or a question.
type watching struct {
	metrics *metrics.Worker
	logger  *slog.Logger
}

// watchedStore is a Store whose commits are watched. A commit whose answer is lost is missed.
type watchedStore struct {
	Store
	watching
}

// watchedLog is a Log whose commits are watched.
type watchedLog struct {
	Log
	watching
}

// RunEnd implements Store.
func (s watchedStore) RunEnd(ctx context.Context, ending run.Ending) (run.Run, error) {
	run, err := s.Store.RunEnd(ctx, ending)
	if err == nil && run.Ended != nil {
		s.turnEnded(ctx, run)
	}
	return run, err
}

func (w watching) turnEnded(ctx context.Context, run run.Run) {
	took, wait := max(0, run.EndedAt.Sub(run.StartedAt)), run.Ended.QueueWait
	w.metrics.TurnEnded(metrics.Turn{
		Agent: run.Ended.Agent, Outcome: string(run.Outcome), Took: took, QueueWait: wait,
		InputTokens: run.Usage.InputTokens, OutputTokens: run.Usage.OutputTokens,
	})
	level := slog.LevelInfo
	if run.Outcome == session.OutcomeFailed || run.Outcome == session.OutcomeUnknown {
		level = slog.LevelWarn
	}
	attrs := []slog.Attr{
		slog.String("session_id", run.SessionID), slog.String("prompt_id", run.PromptID), slog.String("run_id", run.ID),
		slog.String("agent", run.Ended.Agent), slog.String("outcome", string(run.Outcome)), slog.String("reason", brief(run.Reason)),
		slog.Duration("duration", took), slog.Int64("input_tokens", run.Usage.InputTokens),
		slog.Int64("output_tokens", run.Usage.OutputTokens), slog.Int64("tool_calls", run.Usage.ToolCalls),
		slog.Int64("attempt", run.Attempt), slog.Int64("generation", run.Generation),
	}
	if run.Ended.RequestID != "" {
		attrs = append(attrs, slog.String("request_id", run.Ended.RequestID))
	}
	if wait >= 0 {
		attrs = append(attrs, slog.Duration("queue_wait", wait))
	} else {
		attrs = append(attrs, slog.Bool("queued_again", true))
	}
	w.logger.LogAttrs(ctx, level, "turn ended", attrs...)
}

// TransitionRecord implements Store.
func (s watchedStore) TransitionRecord(ctx context.Context, t session.Transition) error {
	return s.recorded(ctx, t, func() error { return s.Store.TransitionRecord(ctx, t) })
}

// TransitionRecordEnded implements Store.
func (s watchedStore) TransitionRecordEnded(ctx context.Context, t session.Transition, ended []int64, reason string) error {
	return s.recorded(ctx, t, func() error { return s.Store.TransitionRecordEnded(ctx, t, ended, reason) })
}

// TransitionRecordReady implements Store.
func (s watchedStore) TransitionRecordReady(
	ctx context.Context, t session.Transition, ready session.SandboxRow, proved string, claim run.Proposal,
) (verdict run.Verdict, err error) {
	err = s.recorded(ctx, t, func() (err error) {
		verdict, err = s.Store.TransitionRecordReady(ctx, t, ready, proved, claim)
		return err
	})
	return verdict, err
}

// recorded logs a transition that record records.
func (s watchedStore) recorded(ctx context.Context, t session.Transition, record func() error) error {
	requestID := ""
	err := inParallel(record, func() error {
		if t.Command != "" {
			requestID, _ = s.CommandRequest(ctx, t.Command) // it is only logged
		}
		return nil
	})
	if err == nil {
		s.transition(ctx, t, requestID)
	}
	return err
}

func (w watching) transition(ctx context.Context, t session.Transition, requestID string) {
	w.metrics.Transition(string(t.From), string(t.To))
	attrs := []slog.Attr{
		slog.String("session_id", t.SessionID), slog.String("from", string(t.From)), slog.String("to", string(t.To)),
		slog.String("reason", brief(t.Reason)), slog.Int64("generation", t.Generation),
	}
	if t.Receipt != nil {
		attrs = append(attrs, slog.String("receipt", string(t.Receipt.Kind)))
	}
	if t.Command != "" {
		attrs = append(attrs, slog.String("command_id", t.Command))
	}
	if requestID != "" {
		attrs = append(attrs, slog.String("request_id", requestID))
	}
	if !t.Since.IsZero() {
		took := max(0, t.At.Sub(t.Since))
		attrs = append(attrs, slog.Duration("duration", took))
		w.measure(t, took)
	}
	level := slog.LevelInfo
	if t.To == session.Error {
		level = slog.LevelWarn
	}
	w.logger.LogAttrs(ctx, level, "session status changed", attrs...)
}

// measure records how long a session was in the state that it leaves, if that is a transitional
// state.
func (w watching) measure(t session.Transition, took time.Duration) {
	switch {
	case t.From == session.Initializing && t.To == session.Running:
		w.metrics.Started(took)
	case t.From == session.Restoring && t.To == session.Running && t.Receipt != nil:
		w.metrics.Woken(string(t.Receipt.Kind), took)
	case t.From == session.Hibernating && t.To == session.Hibernated:
		w.metrics.Hibernated(took)
	}
}

// Append implements Log.
func (l watchedLog) Append(ctx context.Context, a eventlog.Append) error {
	began := time.Now()
	err := l.Log.Append(ctx, a)
	if err != nil {
		return err
	}
	l.metrics.EventsAppended(time.Since(began))
	for _, q := range a.Questions {
		if q.Decided != nil {
			continue
		}
		l.metrics.QuestionAsked(string(q.Asked.Kind))
		l.logger.LogAttrs(ctx, slog.LevelInfo, "question asked", slog.String("session_id", a.SessionID), slog.String("run_id", a.RunID),
			slog.String("kind", string(q.Asked.Kind)), slog.Time("expires_at", q.ExpiresAt))
	}
	return nil
}

// maxLoggedReason bounds the reason in a log line.
const maxLoggedReason = 200

// brief returns the first line of a reason, truncated. The rest may be the output of a script or of
// an agent.
func brief(reason string) string {
	reason, _, _ = strings.Cut(reason, "\n")
	if len(reason) <= maxLoggedReason {
		return reason
	}
	cut := maxLoggedReason
	for cut > 0 && !utf8.RuneStart(reason[cut]) {
		cut--
	}
	return reason[:cut] + "…"
}
