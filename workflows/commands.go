package workflows

import (
	"slices"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/overwinter-dev/overwinter/activities"
	"github.com/overwinter-dev/overwinter/internal/contract"
	"github.com/overwinter-dev/overwinter/internal/session"
)

const (
	// looksForWork is the change since which the workflow reads the pending commands and prompts
	// after each turn and transition, because submissions during a turn are not signalled.
	looksForWork = "looks-for-work"
	// savesBeforeReading is the change since which the workflow does not read the pending work between
	// the transition to hibernating and the save, but after the save, because a reader waits for it.
	// It has read the work before the transition, and later commands are signalled.
	savesBeforeReading = "saves-before-reading"
	// recordsCancel is the change since which a cancellation in Temporal is stored as a stop.
	recordsCancel = "records-cancel"
)

// Bounds of the signals that are answered immediately during a turn. A workflow cannot continue as
// new during a turn, so it answers further signals at intervals: at most 2,880 a day.
const (
	maxLooksInATurn = 100
	lookInterval    = 30 * time.Second
)

// readWaiting reads the pending commands and prompts. Until it has read them, at most one signal is
// outstanding.
func (l *life) readWaiting(ctx workflow.Context) error {
	l.signalled, l.moved, l.promptSignalled = false, false, false
	l.queue = session.NewQueue(nil, l.queue.Seen()) // keeps prompts that are signalled in the meantime
	l.looks, l.lookedAt = l.looks+1, workflow.Now(ctx)
	var found activities.Waiting
	err := l.record(ctx, "read pending work", control.ReadWaiting, activities.SessionRef{SessionID: l.id}, &found)
	if err != nil {
		l.moved = true
		return err
	}
	for _, p := range found.Next {
		l.queue.Requeue(p)
	}
	l.idleTimeout = found.IdleTimeout
	l.replaceCommands(found.Commands)
	return nil
}

// takeWaiting applies, like readWaiting, the commands and prompts that were read with the end of a
// turn. If the workflow read them itself during the turn, its own list may be newer, so it reads
// them again.
func (l *life) takeWaiting(found *activities.Waiting) {
	if found == nil || l.looks > 0 || l.wants.Stop {
		return
	}
	l.moved, l.promptSignalled = false, false
	for _, p := range found.Next {
		l.queue.Requeue(p)
	}
	l.idleTimeout = found.IdleTimeout
	l.replaceCommands(found.Commands)
}

// readDue reports whether the workflow must read the pending work: it has an unanswered signal, or
// may have missed work because a turn or a transition has ended. If a prompt is known to be
// waiting, its claim also reads the pending work and answers the signal.
func (l *life) readDue(ctx workflow.Context) bool {
	idle := l.queue.Len() == 0 || l.state == session.Error // no claim follows that would read the pending work
	return l.signalled || (l.moved || l.promptSignalled) && idle && l.readsWaiting(ctx) && !l.savesFirst(ctx)
}

// savesFirst reports whether the pending work is read only once the session is saved. A session that
// only moves to another sandbox reads it first: its command is now the wake that follows.
func (l *life) savesFirst(ctx workflow.Context) bool {
	return l.state == session.Hibernating && !l.promptSignalled && !l.wants.Wake &&
		workflow.GetVersion(ctx, savesBeforeReading, workflow.DefaultVersion, 1) != workflow.DefaultVersion
}

func (l *life) readsWaiting(ctx workflow.Context) bool {
	return workflow.GetVersion(ctx, looksForWork, workflow.DefaultVersion, 1) != workflow.DefaultVersion
}

// answerAt returns the time at which a signal during a turn is answered: immediately, or after an
// interval if the turn has had many signals.
func (l *life) answerAt(now time.Time) time.Time {
	if l.looks < maxLooksInATurn {
		return now
	}
	return l.lookedAt.Add(lookInterval)
}

// replaceCommands replaces the workflow's list of pending commands.
func (l *life) replaceCommands(commands []activities.PendingCommand) {
	for _, c := range l.pending {
		l.forgetCommand(c.Kind)
	}
	l.pending = commands
	for _, c := range commands {
		l.applyCommand(c)
	}
}

func (l *life) applyCommand(c activities.PendingCommand) {
	switch c.Kind {
	case session.CommandStop:
		l.wants.Stop, l.stopReason = true, c.Reason
	case session.CommandHibernate, session.CommandDrop, session.CommandRestart:
		l.wants.Hibernate, l.wants.Force = true, l.wants.Force || c.Force
		l.wants.Drop, l.wants.Restart = c.Kind == session.CommandDrop, c.Kind == session.CommandRestart
	case session.CommandSync:
		l.wants.Sync = true
	case session.CommandWake:
		l.wants.Wake = true
	case session.CommandRecover:
		l.wants.Recover = true
	case session.CommandRevert:
		l.wants.Revert = c.PromptID
		l.abort = l.abort || c.Force && (l.turn != nil || l.processing != nil || l.parked != nil)
	case session.CommandAbort:
		l.askAbort(contract.AbortSignal{RunID: c.RunID})
	}
}

// forgetCommand drops the request of a command that is no longer pending. It keeps a stop.
func (l *life) forgetCommand(kind session.CommandKind) {
	switch kind {
	case session.CommandHibernate, session.CommandDrop, session.CommandRestart:
		l.wants.Hibernate, l.wants.Force, l.wants.Drop, l.wants.Restart = false, false, false, false
	case session.CommandSync:
		l.wants.Sync = false
	case session.CommandWake:
		l.wants.Wake = false
	case session.CommandRecover:
		l.wants.Recover = false
	case session.CommandRevert:
		l.wants.Revert = ""
	}
}

// pendingOf returns the pending command of a kind, or the zero value.
func (l *life) pendingOf(kind session.CommandKind) activities.PendingCommand {
	i := slices.IndexFunc(l.pending, func(c activities.PendingCommand) bool { return c.Kind == kind })
	if i < 0 {
		return activities.PendingCommand{}
	}
	return l.pending[i]
}

// pendingID returns the id of the pending command of a kind, or "".
func (l *life) pendingID(kind session.CommandKind) string { return l.pendingOf(kind).ID }

// cause returns the command that requested a transition. The transition is recorded only while the
// command is pending.
func (l *life) cause(event session.Event, reason string) string {
	switch {
	case event == session.EventHibernate && (reason == session.ReasonRequested || reason == session.ReasonShutdown):
		return l.pendingID(session.CommandHibernate)
	case event == session.EventHibernate && reason == session.ReasonDropped:
		return l.pendingID(session.CommandDrop)
	case event == session.EventHibernate && reason == session.ReasonRestart:
		return l.pendingID(session.CommandRestart)
	case event == session.EventWake && reason != session.ReasonPrompt:
		return l.pendingID(session.CommandWake)
	case event == session.EventRecover && reason == session.ReasonDropped:
		return l.pendingID(session.CommandDrop)
	case event == session.EventRecover:
		return l.pendingID(session.CommandRecover)
	}
	return ""
}

// endCommand ends a command that succeeded or failed without a transition. It does nothing if the
// id is empty, as in a step without a command.
func (l *life) endCommand(ctx workflow.Context, id string, failed error) error {
	if id == "" {
		return nil
	}
	end := activities.CommandEnding{SessionID: l.id, CommandID: id, Status: session.CommandApplied}
	if failed != nil {
		end.Status, end.Reason = session.CommandRefused, activities.ReasonOf(failed)
	}
	l.pending = slices.DeleteFunc(slices.Clone(l.pending), func(c activities.PendingCommand) bool { return c.ID == id })
	l.moved = true
	return l.record(ctx, "end the command", control.EndCommand, end, nil)
}

// noteCancel records that the workflow was cancelled in Temporal, which has the effect of a stop.
func (l *life) noteCancel() {
	l.canceled, l.cancelled, l.wants.Stop = nil, true, true
}

// recordCancel stores the cancellation as a stop, so that it outlives this workflow run.
func (l *life) recordCancel(ctx workflow.Context) error {
	l.cancelled = false
	if workflow.GetVersion(ctx, recordsCancel, workflow.DefaultVersion, 1) == workflow.DefaultVersion {
		return nil
	}
	l.stopReason = session.ReasonCancelledInTemporal
	stop := activities.StopRequest{SessionID: l.id, Reason: session.ReasonCancelledInTemporal}
	err := l.record(ctx, "store the stop", control.RecordStop, stop, &l.stopReason)
	l.cancelled = activities.TypeOf(err) == activities.StaleWorkflow // the stop was stored after the session was read
	return err
}

// attend answers signals during a turn.
func (l *life) attend(ctx workflow.Context) error {
	if l.cancelled {
		if err := l.recordCancel(ctx); err != nil {
			return err
		}
	}
	if !l.signalled || workflow.Now(ctx).Before(l.answerAt(workflow.Now(ctx))) {
		return nil
	}
	return l.readWaiting(ctx)
}
