package worker

import (
	"context"
	"log/slog"
	"time"

	"github.com/overwinter-dev/overwinter/internal/backlog"
	"github.com/overwinter-dev/overwinter/internal/metrics"
)

// CommandRelay signals workflows again for commands that have been pending for a while: the signal
// may have been lost, or the workflow run that had read the row. Every worker has one; a repeated
// signal has no effect.
type CommandRelay struct {
	Rows     OverdueCommands
	Signaler CommandSignaler
	// Metrics count the signals. Default: unregistered metrics.
	Metrics *metrics.Worker
	// Every is the interval between passes. Default 2s.
	Every time.Duration
	// Age is how long a command may be pending before its workflow is checked. Default 3s.
	Age time.Duration
	// Batch bounds the sessions that one pass signals. Default 200.
	Batch int
}

// OverdueCommands lists sessions with commands that are pending for longer than age, beginning with
// those whose commands no workflow run has read completely.
type OverdueCommands interface {
	CommandsOverdue(ctx context.Context, age time.Duration, limit int) ([]backlog.Overdue, error)
}

// CommandSignaler signals the workflow of a session, and starts it if necessary.
type CommandSignaler interface {
	SignalCommands(ctx context.Context, sessionID string) error
	SignalStop(ctx context.Context, sessionID string) error
	// CurrentRun returns the id of the session's open workflow run; empty if none is open.
	CurrentRun(ctx context.Context, sessionID string) (string, error)
}

// failuresInARow is the number of consecutive failures that end a pass: Temporal does not answer,
// and every further session would wait for a timeout.
const failuresInARow = 3

func (r CommandRelay) run(ctx context.Context, logger *slog.Logger) error {
	if r.Rows == nil {
		return nil
	}
	if r.Every == 0 {
		r.Every = 2 * time.Second
	}
	if r.Age == 0 {
		r.Age = 3 * time.Second
	}
	if r.Batch == 0 {
		r.Batch = 200
	}
	if r.Metrics == nil {
		r.Metrics = metrics.NewWorker(nil)
	}
	waits := map[backlog.Overdue]pauseUntil{}
	return repeat(ctx, r.Every, func() {
		if err := r.look(ctx, logger, waits); err != nil && ctx.Err() == nil {
			logger.WarnContext(ctx, "could not signal for pending commands", slog.Any("error", err))
		}
	})
}

// pauseUntil is the time at which a session is checked again, and the pause after that.
type pauseUntil struct {
	at   time.Time
	next time.Duration
}

// maxCommandPause is the longest pause between two checks of the workflow of one session.
const maxCommandPause = 30 * time.Second

func (r CommandRelay) look(ctx context.Context, logger *slog.Logger, waits map[backlog.Overdue]pauseUntil) error {
	found, err := r.Rows.CommandsOverdue(ctx, r.Age, r.Batch)
	if err != nil {
		return err
	}
	seen := make(map[backlog.Overdue]bool, len(found))
	failures := 0
	for _, u := range found {
		seen[u] = true
		wait := waits[u]
		if time.Now().Before(wait.at) {
			continue
		}
		if err = r.signal(ctx, logger, u); err != nil {
			if failures++; failures == failuresInARow {
				return err
			}
			continue
		}
		failures = 0
		wait.next = min(max(2*wait.next, r.Age), maxCommandPause)
		wait.at = time.Now().Add(wait.next)
		waits[u] = wait
	}
	for u := range waits {
		if !seen[u] {
			delete(waits, u)
		}
	}
	return err
}

// signal signals the workflow unless the run that has read the session's commands is still open.
func (r CommandRelay) signal(ctx context.Context, logger *slog.Logger, u backlog.Overdue) error {
	if u.HeardBy != "" {
		current, err := r.Signaler.CurrentRun(ctx, u.SessionID)
		if err != nil || current == u.HeardBy {
			return err
		}
	}
	send := r.Signaler.SignalCommands
	if u.Stop {
		send = r.Signaler.SignalStop
	}
	err := send(ctx, u.SessionID)
	r.Metrics.Relayed("command", err)
	if err != nil {
		return err
	}
	logger.InfoContext(ctx, "re-sent command signal", slog.String("session_id", u.SessionID), slog.Bool("stop", u.Stop))
	return nil
}
