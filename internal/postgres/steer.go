package postgres

import (
	"context"

	"github.com/overwinter-dev/overwinter/internal/postgres/dbsqlc"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// steerRank is the rank of a new prompt of the mode steer: it comes before all that wait, but after others of its mode that come before
// these.
func steerRank(head []dbsqlc.PromptHeadRow) int64 {
	for _, p := range head {
		switch {
		case p.Status != string(session.PromptQueued):
		case p.Mode == string(session.Steer) && p.Rank < 0:
			return p.Rank
		default:
			return min(0, p.Rank) - 1
		}
	}
	return -1
}

// steersIn counts the prompts that a new one of the mode steer comes after.
func steersIn(head []dbsqlc.PromptHeadRow) (n int) {
	rank := steerRank(head)
	for _, p := range head {
		if p.Status == string(session.PromptQueued) && p.Rank == rank {
			n++
		}
	}
	return n
}

// steer interrupts the run that is open for a prompt that was submitted, with an abort that says so, and reports whether the workflow is to be
// signalled. An abort that is pending already is enough. Nothing is interrupted while the queue is held, because the prompt would not
// start, or if the session is to stop.
func (s *sessionTx) steer(ctx context.Context, p session.Prompt, openRun string) (notify bool, err error) {
	if openRun == "" || s.held() {
		return false, nil
	}
	pending, err := s.commandable(ctx)
	if err != nil {
		return false, err
	}
	verdict := session.Judge(session.CommandAbort, pending)
	if possible := verdict.Refused == nil && !verdict.Already; !possible {
		return false, nil
	}
	var done session.Commanded
	abort := session.Command{
		SessionID: s.row.ID, Kind: session.CommandAbort, RunID: openRun, Reason: session.ReasonSteered, RequestID: p.RequestID,
	}
	err = s.commandAccept(ctx, abort, pending, verdict, &done)
	return done.Notify, err
}

// steered gives a run that was interrupted for a prompt of the mode steer that reason.
func (s *sessionTx) steered(ctx context.Context, runID string, ending *session.RunEnding) error {
	if ending.Outcome != session.OutcomeCancelled || ending.Reason != session.ReasonAborted {
		return nil
	}
	var err error
	ending.Reason, err = s.abortReason(ctx, runID)
	return err
}

// abortReason is why a run is interrupted that is ended as aborted.
func (s *sessionTx) abortReason(ctx context.Context, runID string) (string, error) {
	pending, err := s.q.CommandsPending(ctx, s, s.row.ID)
	if err != nil {
		return "", err
	}
	for _, c := range pending {
		if c.Kind == string(session.CommandAbort) && c.RunID == runID && c.Reason == session.ReasonSteered {
			return session.ReasonSteered, nil
		}
	}
	return session.ReasonAborted, nil
}
