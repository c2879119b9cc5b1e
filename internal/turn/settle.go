package turn

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/overwinter-dev/overwinter/internal/eventlog"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/run"
)

// settleStore ends runs that no worker can end any more.
type settleStore interface {
	// RunFence makes token the only one that counts, so that no worker can add to
	// the run any more, and returns it like RunAttach, without counting an attempt.
	RunFence(ctx context.Context, runID, token string) (run.Start, error)
	RunEnd(ctx context.Context, ending run.Ending) (run.Run, error)
}

// Settle ends a run that no worker can end any more. The run's token is taken
// first, which fences off a worker that still believes in it, and every block
// that was left open is closed. Where a frame had ended the turn already, and
// only its outcome was not written, that end stands; a run that is over keeps its
// outcome.
func (x *Executor) Settle(ctx context.Context, ending run.Ending) error {
	token := NewToken()
	start, err := x.Store.RunFence(ctx, ending.RunID, token)
	if failure.CodeOf(err) == failure.IllegalState {
		return nil // over already
	}
	if err != nil {
		return Stored(err)
	}
	masker, err := x.masker(ctx)
	if err != nil {
		return err
	}
	c, end, err := x.resume(start)
	switch {
	case err != nil:
		// Blocks stay open rather than the session stuck.
		x.Logger.ErrorContext(ctx, "what a run left open cannot be closed", slog.String("session_id", start.Run.SessionID),
			slog.String("run_id", ending.RunID), slog.Any("error", err))
	case end != nil:
		ending.Outcome, ending.Reason, ending.Usage, ending.Model = end.Outcome, end.Reason, end.Usage, end.Model
		ending.Requeue, ending.Read = false, true
	default:
		c.masking.masker = masker
		if err := x.cut(ctx, start, c, token); err != nil {
			return err
		}
	}
	_, err = x.Store.RunEnd(ctx, ending)
	return Stored(err)
}

// cut closes every block that a run left open: no frame of it will come any more.
func (x *Executor) cut(ctx context.Context, start run.Start, c *convert, token string) error {
	frame := start.Run.LastFrame + 1
	drafts, err := c.drafts(c.translator.Cut(time.Now().UTC()), frame)
	if err != nil {
		return err
	}
	state, err := c.encode(nil)
	if err != nil {
		return fmt.Errorf("state of run %s: %w", start.Run.ID, err)
	}
	err = x.Log.Append(ctx, eventlog.Append{
		SessionID: start.Run.SessionID, RunID: start.Run.ID, Generation: start.Generation, Token: token,
		Events: drafts, LastFrame: frame, State: state,
	})
	if errors.Is(err, eventlog.ErrFenced) {
		return nil // another caller is settling it
	}
	return err
}
