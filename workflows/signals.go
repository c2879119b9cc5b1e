package workflows

import (
	"cmp"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/overwinter-dev/overwinter/internal/contract"
	"github.com/overwinter-dev/overwinter/internal/session"
)

type signals struct {
	prompt, wake, hibernate, stop, abort, recover, settings, sandbox, sync, restart, revert, commands, attended workflow.ReceiveChannel
}

// handle registers every handler before the workflow can block.
func (l *life) handle(ctx workflow.Context) error {
	l.signals = signals{
		prompt:    workflow.GetSignalChannel(ctx, contract.SignalPrompt),
		wake:      workflow.GetSignalChannel(ctx, contract.SignalWake),
		hibernate: workflow.GetSignalChannel(ctx, contract.SignalHibernate),
		stop:      workflow.GetSignalChannel(ctx, contract.SignalStop),
		abort:     workflow.GetSignalChannel(ctx, contract.SignalAbort),
		recover:   workflow.GetSignalChannel(ctx, contract.SignalRecover),
		settings:  workflow.GetSignalChannel(ctx, contract.SignalSettings),
		sandbox:   workflow.GetSignalChannel(ctx, contract.SignalSandbox),
		sync:      workflow.GetSignalChannel(ctx, contract.SignalSync),
		restart:   workflow.GetSignalChannel(ctx, contract.SignalRestart),
		revert:    workflow.GetSignalChannel(ctx, contract.SignalRevert),
		commands:  workflow.GetSignalChannel(ctx, contract.SignalCommands),
		attended:  workflow.GetSignalChannel(ctx, contract.SignalAttended),
	}
	return workflow.SetQueryHandlerWithOptions(ctx, contract.QueryState, l.view, workflow.QueryHandlerOptions{
		Description: "The state, the pending requests and the current wait of the session, as its workflow sees them.",
	})
}

// receivers pairs each channel with the handler of its messages. A repeated message has no effect.
func (l *life) receivers(ctx workflow.Context) []receiver {
	return []receiver{
		{l.signals.commands, func(c workflow.ReceiveChannel) { c.Receive(ctx, nil); l.signalled = true }},
		{l.signals.stop, func(c workflow.ReceiveChannel) { c.Receive(ctx, nil); l.wants.Stop = true }},
		{l.signals.abort, func(c workflow.ReceiveChannel) {
			var s contract.AbortSignal
			c.Receive(ctx, &s)
			l.askAbort(s)
		}},
		{l.signals.hibernate, func(c workflow.ReceiveChannel) {
			var s contract.HibernateSignal
			c.Receive(ctx, &s)
			l.askHibernate(s)
		}},
		{l.signals.restart, func(c workflow.ReceiveChannel) {
			var s contract.RestartSignal
			c.Receive(ctx, &s)
			l.askRestart(s)
		}},
		{l.signals.revert, func(c workflow.ReceiveChannel) {
			var s contract.RevertSignal
			c.Receive(ctx, &s)
			l.askRevert(s)
		}},
		{l.signals.sync, func(c workflow.ReceiveChannel) { c.Receive(ctx, nil); l.askSync() }},
		{l.signals.wake, func(c workflow.ReceiveChannel) { c.Receive(ctx, nil); l.askWake() }},
		{l.signals.recover, func(c workflow.ReceiveChannel) { c.Receive(ctx, nil); l.askRecover() }},
		{l.signals.prompt, func(c workflow.ReceiveChannel) {
			var s contract.PromptSignal
			c.Receive(ctx, &s)
			l.notePrompt(s, workflow.Now(ctx))
		}},
		{l.signals.attended, func(c workflow.ReceiveChannel) {
			var s contract.AttendedSignal
			c.Receive(ctx, &s)
			l.noteAttended(s)
		}},
		{l.signals.settings, func(c workflow.ReceiveChannel) {
			var s contract.SettingsSignal
			c.Receive(ctx, &s)
			l.applySettings(s)
		}},
		{l.signals.sandbox, func(c workflow.ReceiveChannel) {
			var s contract.SandboxSignal
			c.Receive(ctx, &s)
			l.noteSandbox(s)
		}},
	}
}

type receiver struct {
	channel workflow.ReceiveChannel
	receive func(workflow.ReceiveChannel)
}

// drain handles every pending signal without blocking.
func (l *life) drain(ctx workflow.Context) {
	for _, r := range l.receivers(ctx) {
		for r.channel.Len() > 0 {
			r.receive(r.channel)
		}
	}
	if l.canceled != nil {
		// This also runs in the task that continues as new or completes.
		if received, more := l.canceled.ReceiveAsyncWithMoreFlag(nil); !received && !more {
			l.noteCancel()
		}
	}
}

// notePrompt records that a prompt is waiting in Postgres. An empty id opens the workflow, or makes
// an open workflow read the session again. A prompt that was in the queue before and is not being
// processed has the same effect.
func (l *life) notePrompt(s contract.PromptSignal, now time.Time) {
	l.promptSignalled = l.promptSignalled || s.PromptID != ""
	known := s.PromptID == "" || l.queue.Has(s.PromptID)
	switch {
	case s.PromptID == "":
		l.stale = l.opened
	case l.queue.Push(session.QueuedPrompt{ID: s.PromptID, Ordinal: s.Ordinal}):
		l.lastActivity = now
	case !l.queue.Has(s.PromptID) && (l.turn == nil || l.turn.PromptID != s.PromptID):
		l.stale, known = l.opened, true
	}
	l.resignalled = l.resignalled || known && l.attended
}

// forgetPrompts empties the queue, because it is held. The release signals the waiting prompts; if
// its signal has already arrived, the workflow reads them.
func (l *life) forgetPrompts() { l.queue = session.NewQueue(nil, l.queue.Seen()) }

// noteAttended records the prompts that arrived during an attendance. They only appear in the
// history and in the view; their results are in the result of the attendance, or in Postgres.
func (l *life) noteAttended(s contract.AttendedSignal) {
	if n := len(s.Prompts); n > 0 {
		l.newest = s.Prompts[n-1].ID
	}
}

// askWake requests a wake. The later of a wake and a hibernation wins. The request is kept while
// the session's state is not known because it has not been opened.
func (l *life) askWake() {
	l.wants.Hibernate, l.wants.Force, l.wants.Drop, l.wants.Restart = false, false, false, false
	l.stale = l.opened
	l.wants.Wake = !l.opened || (l.state != session.Running && l.state != session.Error)
}

// askHibernate requests a hibernation. It does nothing if the session has never run, is in error or
// is already hibernated.
func (l *life) askHibernate(s contract.HibernateSignal) {
	l.wants.Wake = false
	if !l.opened || l.state == session.Running || l.state == session.Restoring {
		l.wants.Hibernate, l.wants.Force = true, l.wants.Force || s.Force
		l.wants.Drop, l.wants.Restart = l.wants.Drop || s.Drop, false
	}
}

// askRestart requests a new sandbox for the session. It does nothing for a session without one.
func (l *life) askRestart(s contract.RestartSignal) {
	if !l.opened || l.state == session.Running || l.state == session.Restoring {
		l.wants.Hibernate, l.wants.Force = true, l.wants.Force || s.Force
		l.wants.Restart, l.wants.Drop = true, false
	}
}

// askRevert requests a revert of the agent; the newest request counts. The session must be awake:
// one in error must recover first, and one that has never run has nothing to revert.
func (l *life) askRevert(s contract.RevertSignal) {
	if s.PromptID == "" || l.opened && !l.revertible() {
		return
	}
	l.wants.Revert = s.PromptID
	l.abort = l.abort || s.Force && (!l.opened || l.turn != nil || l.processing != nil || l.parked != nil)
	if l.opened && l.state == session.Hibernated {
		l.wants.Wake = true
	}
}

func (l *life) revertible() bool { return l.state != session.Error && l.state != session.Initializing }

// askSync requests a bundle of the current state. A hibernated session is saved already.
func (l *life) askSync() {
	l.wants.Sync = !l.opened || l.state == session.Running || l.state == session.Restoring
}

func (l *life) askRecover() {
	l.wants.Recover = !l.opened || l.state == session.Error
}

func (l *life) askAbort(s contract.AbortSignal) {
	run := cmp.Or(l.turn, l.processing, l.parked)
	if !l.opened || (run != nil && (s.RunID == "" || s.RunID == run.RunID)) {
		l.abort = true
	}
}

func (l *life) applySettings(s contract.SettingsSignal) {
	if s.IdleTimeout > 0 {
		l.idleTimeout = s.IdleTimeout
		// An attendance may have been planned to last beyond the new deadline.
		l.signalled = l.signalled || l.attended && l.notices.given
	}
}

// noteSandbox records that the provider has reported a sandbox as ended. serve and turns check
// whether it is their sandbox. A report about a sandbox that was replaced by another one of the
// same generation is outdated.
func (l *life) noteSandbox(s contract.SandboxSignal) {
	late := s.Generation == l.generation && s.SandboxID != "" && l.sandboxID != "" && s.SandboxID != l.sandboxID
	another := s.SandboxID != "" && l.lost.SandboxID != "" && s.SandboxID != l.lost.SandboxID
	if !late && (s.Generation > l.lost.Generation || s.Generation == l.lost.Generation && another) {
		l.lost = s
	}
}

// markSandboxLost records that a turn has found its sandbox lost, regardless of earlier reports and
// of the generation.
func (l *life) markSandboxLost() {
	l.lost = contract.SandboxSignal{Generation: l.generation, Reason: session.ReasonLost}
}

// sandboxLost reports whether the sandbox of this generation is presumed lost. A sandbox of the
// same generation that was created after the report is not presumed lost.
func (l *life) sandboxLost() bool {
	replaced := l.lost.SandboxID != "" && l.sandboxID != "" && l.lost.SandboxID != l.sandboxID
	return l.lost.Generation == l.generation && l.generation > 0 && !replaced
}
