package workflows

import (
	"slices"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/overwinter-dev/overwinter/activities"
	"github.com/overwinter-dev/overwinter/internal/run"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// beginsTurnsAhead is the change since which a restore for a prompt also claims the prompt, and the
// activity of its turn begins together with the restore.
const beginsTurnsAhead = "begins-turns-ahead"

// aheadTurn is a turn whose activity has begun before its run: it waits on its worker until the
// restore of the session has claimed the run. A wake thus waits for no task of the workflow between
// the restore and the turn. Nil is none.
type aheadTurn struct {
	begunTurn
	prompt session.QueuedPrompt
	claim  run.Proposal
}

// beginAhead begins the turn of the next prompt if a restore is about to be followed by it. It does
// so only for the first attempt at the restore, because the turn waits on a worker meanwhile.
func (l *life) beginAhead(ctx workflow.Context, then *session.Transition, tried int) (*aheadTurn, error) {
	busy := l.wants.Stop || l.wants.Hibernate || l.wants.Revert != "" || l.wants.Sync
	if then == nil || tried > 1 || l.delay.code != "" || busy || l.queue.Len() == 0 || l.attends <= 0 ||
		workflow.GetVersion(ctx, beginsTurnsAhead, workflow.DefaultVersion, 1) == workflow.DefaultVersion {
		return nil, nil
	}
	a := aheadTurn{prompt: l.queue.Next()}
	a.claim.PromptID = a.prompt.ID
	encoded := workflow.SideEffect(ctx, func(workflow.Context) any { return session.NewID(session.RunPrefix) })
	if err := encoded.Get(&a.claim.ID); err != nil {
		return nil, err
	}
	attend := l.attendance(ctx)
	if attend != nil {
		attend.Until = time.Time{} // the activity knows the deadline of the new sandbox
	}
	a.begunTurn = *l.beginTurn(ctx, "await the restore", turns.RunTurnWhenClaimed, activities.TurnRequest{
		Dispatch: 1, SessionID: l.id, ClaimID: a.claim.ID, Look: true, Attend: attend, ParkAfter: l.parkAfter,
	})
	return &a, nil
}

func (a *aheadTurn) proposal() *run.Proposal {
	if a == nil {
		return nil
	}
	return &a.claim
}

func (a *aheadTurn) begun() *begunTurn {
	if a == nil {
		return nil
	}
	return &a.begunTurn
}

// endAhead cancels a turn whose run the restore does not report as claimed. The run may exist
// nevertheless, for example if the worker was lost after its commit, so the session is read again,
// unless it is stopped: a stop does not wait for the database.
func (l *life) endAhead(a *aheadTurn) {
	if a == nil {
		return
	}
	a.cancel()
	l.leaveOver(a.turn)
	l.stale = l.stale || !l.wants.Stop
}

// leaveOver keeps the activity of a turn that the workflow has ended, because its worker has yet to
// notice.
func (l *life) leaveOver(turn workflow.Future) { l.leftovers = append(l.leftovers, turn) }

// awaitsLeftovers reports whether such an activity has not ended yet.
func (l *life) awaitsLeftovers() bool {
	l.leftovers = slices.DeleteFunc(l.leftovers, workflow.Future.IsReady)
	return len(l.leftovers) > 0
}

// runAhead executes the run that the restore has claimed.
func (l *life) runAhead(ctx workflow.Context, a *aheadTurn, claimed run.Verdict) error {
	l.queue.Take(a.prompt.ID)
	l.promptSignalled = false // the claim has answered the signal
	current := session.Processing{
		PromptID: a.prompt.ID, Ordinal: a.prompt.Ordinal, RunID: claimed.RunID, Generation: l.generation,
		OnUnknown: claimed.OnUnknown, Dispatch: claimed.Dispatch,
	}
	l.abort = l.abort || l.pendingAbort(current.RunID)
	if a.turn.IsReady() && activities.TypeOf(a.turn.Get(ctx, nil)) == activities.GaveWay {
		a = nil
	}
	return l.runBegun(ctx, current, a)
}
