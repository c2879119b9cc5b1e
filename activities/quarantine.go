package activities

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/overwinter-dev/overwinter/internal/run"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// quarantine ends a run whose frames crash workers. It interrupts the agent; no further frames are
// read, and the session continues with its next prompt.
func (t *Turns) quarantine(ctx context.Context, in TurnRequest, start run.Start) (TurnResult, error) {
	logger := t.Logger.With(slog.String("session_id", in.SessionID), slog.String("run_id", in.RunID))
	logger.ErrorContext(ctx, "quarantined run: workers were lost while they handled its output",
		slog.Int64("frame", start.Run.LastFrame), slog.Int64("attempt", start.Run.Attempt))
	if err := t.runners.interrupt(ctx, AbortRequest{
		SessionID: in.SessionID, Agent: start.Agent, RunID: in.RunID, Generation: in.Generation, SandboxID: in.SandboxID,
	}); err != nil {
		logger.WarnContext(ctx, "could not interrupt the agent of a quarantined run", slog.Any("error", err))
	}
	message := fmt.Sprintf("Workers were lost while they processed the agent's output after frame %d. "+
		"The rest of its output in this turn is not read.", start.Run.LastFrame)
	if err := t.store.ProblemReport(ctx, in.SessionID, session.ReasonQuarantined, message); err != nil {
		return TurnResult{}, stored(err)
	}
	ending := run.Ending{RunID: in.RunID, Outcome: session.OutcomeFailed, Reason: session.ReasonQuarantined}
	if err := t.settleDamaged(ctx, ending, logger); err != nil {
		return TurnResult{}, err
	}
	return t.superseded(ctx, in, errors.New("the run is quarantined"))
}

// settleDamaged is settle for a run whose stored state may make its adapter panic. If it does, its
// blocks stay open, so that the session is not stuck.
func (t *Turns) settleDamaged(ctx context.Context, ending run.Ending, logger *slog.Logger) (err error) {
	defer func() {
		if p := recover(); p != nil {
			logger.ErrorContext(ctx, "the state of a quarantined run cannot be read", slog.Any("panic", p))
			_, err = t.store.RunEnd(ctx, ending)
			err = stored(err)
		}
	}()
	return t.runs.Settle(ctx, ending)
}
