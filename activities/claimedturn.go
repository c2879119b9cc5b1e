package activities

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"go.temporal.io/sdk/activity"

	"github.com/overwinter-dev/overwinter/internal/deadline"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/run"
)

// claimLookEvery is how often a turn looks for the run of its claim, in case a notification was lost.
const claimLookEvery = 2 * time.Second

var errGaveWay = errors.New("the worker needs the place for another turn")

// RunTurnWhenClaimed is RunTurn for a run that does not exist yet: it waits until the restore of the
// session has claimed the run, so that the turn is on its worker when the sandbox is ready. The
// workflow cancels it if the restore claims nothing. While it waits, it gives way to turns like an
// attendant does; the error is then GaveWay.
func (t *Turns) RunTurnWhenClaimed(ctx context.Context, in TurnRequest) (TurnResult, error) {
	ctx, pulse := startPulse(ctx, t.TurnStall, t.Logger.With(slog.String("session_id", in.SessionID), slog.String("claim_id", in.ClaimID)))
	defer pulse.stop()
	place := t.places.takeSpare()
	if place == nil {
		return TurnResult{}, final(GaveWay, errGaveWay)
	}
	defer place.release()
	found, err := t.awaitClaim(ctx, in, pulse, place)
	if err != nil {
		return TurnResult{}, err
	}
	in.RunID, in.PromptID, in.Generation, in.SandboxID = found.RunID, found.PromptID, found.Generation, found.SandboxID
	if in.Attend != nil && !found.Deadline.IsZero() {
		attend := *in.Attend
		attend.Until = found.Deadline.Add(-deadline.MoveMargin(found.Since, found.Deadline))
		in.Attend = &attend
	}
	return t.run(ctx, in, pulse, place)
}

func (t *Turns) awaitClaim(ctx context.Context, in TurnRequest, pulse *pulse, place *place) (run.Located, error) {
	pulse.Waiting()
	defer pulse.Made()
	place.rest()
	defer place.rise()
	var changed <-chan struct{}
	if t.Changes != nil {
		watched, unwatch := t.Changes.Watch(in.SessionID)
		defer unwatch()
		changed = watched
	}
	look := time.NewTicker(claimLookEvery)
	defer look.Stop()
	for {
		found, ok, err := t.claimed(ctx, in)
		switch {
		case ok:
			return found, nil
		case err != nil && failure.CodeOf(err) != failure.Unavailable:
			return run.Located{}, stored(err)
		}
		select {
		case <-changed:
		case <-look.C:
		case <-place.wanted:
			return run.Located{}, final(GaveWay, errGaveWay)
		case <-activity.GetWorkerStopChannel(ctx):
			return run.Located{}, handedOver()
		case <-ctx.Done():
			return run.Located{}, ctx.Err()
		}
	}
}

func (t *Turns) claimed(ctx context.Context, in TurnRequest) (run.Located, bool, error) {
	ctx, cancel := context.WithTimeout(ctx, recordTimeout)
	defer cancel()
	return t.store.RunOfClaim(ctx, in.SessionID, in.ClaimID)
}
