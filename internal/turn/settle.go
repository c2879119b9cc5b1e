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

// settleStore ends runs that no worker can end.
type settleStore interface {
	// RunFence makes token the only valid one, so that no worker can add to the run. It returns the
	// run like RunAttach, without counting an attempt.
	RunFence(ctx context.Context, runID, token string) (run.Start, error)
	RunEnd(ctx context.Context, ending run.Ending) (run.Run, error)
}

// Settle ends a run that no worker can end. It first takes the run's token, which fences any worker
// that still has the run, and closes every open block. If a frame had already ended the turn and
// only the outcome was not written, that end is used; a run that has ended keeps its outcome.
func (x *Executor) Settle(ctx context.Context, ending run.Ending) error {
	token := NewToken()
	start, err := x.Store.RunFence(ctx, ending.RunID, token)
	if failure.CodeOf(err) == failure.IllegalState {
		return nil // the run has already ended
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
		// A block that stays open does less harm than a stuck session.
		x.Logger.ErrorContext(ctx, "the open blocks of a run cannot be closed", slog.String("session_id", start.Run.SessionID),
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

// cut closes every block that a run left open, since no further frames of the run can arrive.
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
		return nil // another caller is settling the run
	}
	return err
}
