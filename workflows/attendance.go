package workflows

import (
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/overwinter-dev/overwinter/activities"
	"github.com/overwinter-dev/overwinter/internal/session"
)

const (
	// maxAttendedPrompts bounds the prompts of one attendance: their ids are in its result.
	maxAttendedPrompts = 100
	// eventsPerPrompt estimates the history events of a prompt that an attendant claims: its
	// signal, and a workflow task that handles the signal.
	eventsPerPrompt = 4
)

// attendance returns the bounds within which the next turn may attend the session, or nil if it may
// not. The history records whether the worker that opened the session allows attendance, so older
// workflows continue without it.
func (l *life) attendance(ctx workflow.Context) *activities.Attend {
	if l.attends <= 0 || workflow.GetInfo(ctx).GetContinueAsNewSuggested() {
		return nil
	}
	left := maxHistoryEvents - workflow.GetInfo(ctx).GetCurrentHistoryLength()
	if l.keepsRoom {
		left -= tailEvents
	}
	left /= eventsPerPrompt
	if left < 1 {
		return nil
	}
	return &activities.Attend{For: l.attends, Until: l.moveAt(), MaxPrompts: min(left, maxAttendedPrompts)}
}

// urgency is the set of work that cannot wait for the end of an attendance.
type urgency struct{ stop, abort, force, expired, lost, cancelDue bool }

func (l *life) urgent(now, cancelAt time.Time) urgency {
	interrupt := l.interruptAt()
	return urgency{
		stop: l.wants.Stop, abort: l.abort, force: l.wants.Force, lost: l.sandboxLost(),
		expired:   !interrupt.IsZero() && !now.Before(interrupt),
		cancelDue: !cancelAt.IsZero() && !now.Before(cancelAt),
	}
}

// followAttendant answers signals during an attendance, as attend does during a turn. The workflow
// does not know whether the attendant has a run, or which one. It asks only before it interrupts a
// turn, and when a prompt seems to be lost. followAttendant reports whether it has ended the
// attendance.
func (l *life) followAttendant(ctx workflow.Context, run *session.Processing, answered *urgency, cancelAt time.Time) (reclaimed bool, err error) {
	if l.cancelled {
		if err := l.recordCancel(ctx); err != nil {
			return false, err
		}
	}
	now := workflow.Now(ctx)
	due := (l.signalled || l.resignalled) && !now.Before(l.answerAt(now))
	if l.urgent(now, cancelAt) == *answered && !due {
		return false, nil
	}
	reclaimed, err = l.reclaim(ctx, run)
	*answered = l.urgent(now, cancelAt)
	return reclaimed, err
}

// reclaim ends the attendance. If a run is in progress, the attendance continues, and run is set to
// that run. reclaim reads the pending commands and prompts, as look does.
func (l *life) reclaim(ctx workflow.Context, run *session.Processing) (reclaimed bool, err error) {
	l.signalled, l.moved, l.promptSignalled, l.resignalled = false, false, false, false
	l.queue = session.NewQueue(nil, l.queue.Seen()) // keeps prompts that are signalled in the meantime
	l.looks, l.lookedAt = l.looks+1, workflow.Now(ctx)
	var found activities.Reclaimed
	if err := l.record(ctx, "take the session back", control.TakeBack, activities.SessionRef{SessionID: l.id}, &found); err != nil {
		l.moved = true
		return false, err
	}
	if found.Run == nil {
		l.turn, l.abort = nil, false
	} else {
		if found.Run.RunID != run.RunID {
			l.abort = l.abort && !l.pendingAbort(run.RunID)
		}
		*run = *found.Run
	}
	for _, p := range found.Next {
		l.queue.Requeue(p)
	}
	l.idleTimeout = found.IdleTimeout
	if found.Run == nil && found.LastActivity.After(l.lastActivity) {
		l.lastActivity = found.LastActivity
	}
	l.replaceCommands(found.Commands)
	return found.Run == nil, nil
}

// pendingAbort reports whether the workflow has a pending command to abort the run.
func (l *life) pendingAbort(runID string) bool {
	for _, c := range l.pending {
		if c.Kind == session.CommandAbort && c.RunID == runID {
			return true
		}
	}
	return false
}

// endAttendance applies the result of a turn that was allowed to attend, and reports whether it
// was.
func (l *life) endAttendance(result activities.TurnResult) bool {
	if !l.attended {
		return false
	}
	if result.Attended != nil {
		l.queue.Forget(result.Attended.Ordinal)
	}
	if result.EndedAt.After(l.lastActivity) {
		l.lastActivity = result.EndedAt
	}
	l.stale = l.stale || result.Reread
	return !result.EndedAt.IsZero()
}
