package postgres

import (
	"context"
	"slices"
	"time"

	"github.com/overwinter-dev/overwinter/internal/checkpoint"
	"github.com/overwinter-dev/overwinter/internal/deadline"
	"github.com/overwinter-dev/overwinter/internal/event"
	"github.com/overwinter-dev/overwinter/internal/postgres/dbsqlc"
	"github.com/overwinter-dev/overwinter/internal/resource"
	"github.com/overwinter-dev/overwinter/internal/run"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// checkpointDue stores a pending sync if the session must save a bundle after the turn that has
// just ended, and adds it to the pending work. It shares the transaction with the end of the turn,
// so that no prompt starts before the bundle is saved, even after a crash, and turn_end does not
// wait for the bundle. It adds nothing if the session is about to save a bundle anyway. The result
// of a completed run that was submitted with a base is always saved. An event announces the time
// that a session shows as its nextCheckpointAt, like its other deadlines.
func (s *sessionTx) checkpointDue(ctx context.Context, closed *closedRun, ending run.Ending) error {
	saves, look := closed.saves, &closed.look
	result := closed.prompt.BaseSessionID != "" && ending.Token != "" && ending.Outcome == session.OutcomeCompleted
	if s.row.Status != string(session.Running) || !result && !saves.policy.Due(saves.newest, s.now) {
		return nil
	}
	rows, err := s.q.CommandsPending(ctx, s, s.row.ID)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(rows, func(c dbsqlc.SessionCommand) bool { return session.CommandKind(c.Kind).BeforePrompts() }) {
		return nil
	}
	if saves.policy.Timed() {
		if err := s.add(event.TypeDeadline, "", event.DeadlineData{Kind: deadline.Checkpoint, At: resource.Time(s.now)}); err != nil {
			return err
		}
	}
	row, err := s.commandRow(ctx, session.Command{Kind: session.CommandSync, Status: session.CommandPending, Reason: session.ReasonCheckpoint})
	if err == nil {
		look.commands = append(look.commands, row)
	}
	return err
}

// checkpointPolicy is when a session saves bundles while it is awake, and when it last saved one.
type checkpointPolicy struct {
	policy checkpoint.Policy
	newest time.Time
}
