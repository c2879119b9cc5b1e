package session

import (
	"cmp"
	"slices"
	"time"

	"github.com/overwinter-dev/overwinter/internal/failure"
)

// CommandKind is the kind of a command. Its text is the last part of the command's route.
type CommandKind string

// The commands of a session.
const (
	CommandStop      CommandKind = "stop"
	CommandWake      CommandKind = "wake"
	CommandHibernate CommandKind = "hibernate"
	CommandSync      CommandKind = "sync"
	CommandAbort     CommandKind = "abort"
	CommandRevert    CommandKind = "revert"
	CommandRecover   CommandKind = "recover"
	CommandRestart   CommandKind = "environment/restart"
	CommandDrop      CommandKind = "environment/terminate"
	// CommandRevertFiles is a revert of files and memory to a bundle. Earlier releases do not know
	// this kind and leave it pending.
	CommandRevertFiles CommandKind = "revert/files"
)

// CommandKinds lists every command.
var CommandKinds = []CommandKind{
	CommandStop, CommandWake, CommandHibernate, CommandSync, CommandAbort, CommandRevert, CommandRecover,
	CommandRestart, CommandDrop, CommandRevertFiles,
}

// CommandStatus is the state of a command. Everything but pending is final.
type CommandStatus string

// The states of a command.
const (
	CommandPending CommandStatus = "pending"
	// CommandApplied: the session executed it.
	CommandApplied CommandStatus = "applied"
	// CommandSuperseded: a later command or a later state of the session made it unnecessary.
	CommandSuperseded CommandStatus = "superseded"
	// CommandRefused: the session could not execute it, for the given reason.
	CommandRefused CommandStatus = "refused"
)

// Command is one request to a session. At most one of each kind is pending per session.
type Command struct {
	ID        string
	SessionID string
	Kind      CommandKind
	Force     bool   // interrupts the running turn
	PromptID  string // of a revert: the first prompt to undo; empty if one with files names a bundle
	BundleID  string // of a revert with files: the bundle to revert to
	RunID     string // of an abort: the run to interrupt
	Status    CommandStatus
	// Reason is why a command ended with its status or, for a command that was not sent by a
	// client, its origin. It may be empty.
	Reason string
	// RequestID is the X-Request-Id of the request that submitted it; empty if no client did.
	RequestID string
	CreatedAt time.Time
	EndedAt   time.Time // zero while it is pending
}

// Reasons of commands.
const (
	// ReasonCancelledInTemporal: the stop of a session whose workflow was cancelled in Temporal's UI or
	// command line. It is also the reason of the transition that follows.
	ReasonCancelledInTemporal = "cancelled_in_temporal"
	// ReasonRunEnded: the run to interrupt ended by itself.
	ReasonRunEnded = "run_ended"
	// ReasonInError: the session is in error, which only allows recover and stop.
	ReasonInError = "session_in_error"
)

// MaxCommandsKept bounds the stored commands of a session that have ended.
const MaxCommandsKept = 100

// CommandVerdict is the decision about a command, given the current state of the session.
type CommandVerdict struct {
	// Refused is the error if the command is not possible; nil otherwise.
	Refused *failure.Error
	// Already means that there is nothing to do. If Supersedes is not empty, the command only had
	// to end those commands, and counts as applied.
	Already bool
	// Supersedes are the pending commands that end because of this one.
	Supersedes []CommandKind
}

// Pending is the state of a session on which the decision about a command depends.
type Pending struct {
	Status   State
	Reason   string // reason of the status; may be empty
	Lazy     bool
	RunID    string    // the run in progress; empty if there is none
	Parked   bool      // the run waits for an answer, and the session may sleep meanwhile
	Commands []Command // pending commands
}

func (p Pending) has(kinds ...CommandKind) []CommandKind {
	var found []CommandKind
	for _, c := range p.Commands {
		if slices.Contains(kinds, c.Kind) {
			found = append(found, c.Kind)
		}
	}
	return found
}

// InError refuses a command that a session in error cannot execute. It names the reason of the error and how to leave it.
func InError(reason string) *failure.Error {
	return failure.Errorf(failure.InError, "the session is in error: %s; POST recover to try again (after a PATCH of workspace, if that is the cause), "+
		"environment/terminate to continue in a sandbox without its files, or stop to end it", cmp.Or(reason, "no reason is known"))
}

// JudgeWorkspace returns why the workspace of a session cannot be changed now; nil if it can. A
// workspace that an activity may be setting up must stay unchanged.
func JudgeWorkspace(status State, generation int64) *failure.Error {
	switch {
	case status.Final():
		return failure.Errorf(failure.Terminated, "the session is terminated")
	case status == Error, status == Initializing && generation == 0:
		return nil
	default:
		return failure.Errorf(failure.WorkspaceUsed,
			"workspace can be changed before the first sandbox of the session is created, and in error; the session is %s and has used %d sandboxes", status, generation)
	}
}

func refuse(format string, args ...any) CommandVerdict {
	return CommandVerdict{Refused: failure.Errorf(failure.IllegalState, format, args...)}
}

// Judge decides about a command for a session. A command with the kind of a pending one is accepted
// and merged with that.
func Judge(kind CommandKind, p Pending) CommandVerdict {
	switch {
	case p.Status.Final() && kind == CommandStop:
		return CommandVerdict{Already: true}
	case p.Status.Final():
		return CommandVerdict{Refused: failure.Errorf(failure.Terminated, "the session is terminated and accepts no commands")}
	case kind == CommandStop:
		return CommandVerdict{Supersedes: p.has(slices.DeleteFunc(slices.Clone(CommandKinds), func(k CommandKind) bool { return k == CommandStop })...)}
	case len(p.has(CommandStop)) > 0:
		return refuse("the session is being stopped; no other command is accepted")
	}
	switch kind {
	case CommandWake:
		return judgeWake(p)
	case CommandHibernate:
		return judgeHibernate(p)
	case CommandSync:
		return judgeSandbox(p)
	case CommandDrop:
		return judgeDrop(p)
	case CommandRestart:
		return judgeRestart(p)
	case CommandAbort:
		return CommandVerdict{Already: p.RunID == ""}
	case CommandRevert:
		return superseding(judgeRevert(p), p.has(CommandRevertFiles))
	case CommandRevertFiles:
		return superseding(judgeRevertFiles(p), p.has(CommandRevert, CommandRestart))
	case CommandRecover:
		return judgeRecover(p)
	default:
		return refuse("there is no command %s", kind)
	}
}

// superseding adds the commands that an accepted command ends.
func superseding(v CommandVerdict, kinds []CommandKind) CommandVerdict {
	if v.Refused == nil && !v.Already {
		v.Supersedes = kinds
	}
	return v
}

func judgeWake(p Pending) CommandVerdict {
	switch p.Status {
	case Running, Restoring:
		return CommandVerdict{Already: true, Supersedes: p.has(CommandHibernate, CommandRestart, CommandDrop)}
	case Initializing:
		return CommandVerdict{Already: !p.Lazy} // a sandbox that is not lazy is being created
	case Error:
		return CommandVerdict{Refused: InError(p.Reason)}
	default:
		return CommandVerdict{}
	}
}

func judgeHibernate(p Pending) CommandVerdict {
	switch p.Status {
	case Hibernating, Hibernated:
		return CommandVerdict{Already: true, Supersedes: p.has(CommandWake)}
	case Initializing:
		return refuse("the session has no sandbox yet that could hibernate; wait until it is running, or stop it")
	case Error:
		return CommandVerdict{Refused: InError(p.Reason)}
	default:
		return CommandVerdict{Supersedes: p.has(CommandWake, CommandRestart, CommandDrop)}
	}
}

// judgeSandbox judges a command about the sandbox of a running session. A sleeping session has no
// sandbox, and its files are saved.
func judgeSandbox(p Pending) CommandVerdict {
	switch p.Status {
	case Hibernating, Hibernated:
		return CommandVerdict{Already: true}
	case Initializing:
		return refuse("the session has no sandbox yet; wait until it is running")
	case Error:
		return CommandVerdict{Refused: InError(p.Reason)}
	default:
		return CommandVerdict{}
	}
}

// judgeDrop judges the request for another sandbox without the files of the current one. It
// recovers a session in error.
func judgeDrop(p Pending) CommandVerdict {
	if p.Status == Error {
		return CommandVerdict{Supersedes: p.has(CommandRecover)}
	}
	return superseding(judgeSandbox(p), p.has(CommandHibernate, CommandRestart))
}

func judgeRestart(p Pending) CommandVerdict {
	if p.Status == Hibernating || p.Status == Hibernated {
		return refuse("the session is %s and has no sandbox to restart; POST wake or a prompt to wake it", p.Status)
	}
	return superseding(judgeSandbox(p), p.has(CommandHibernate, CommandDrop))
}

func judgeRevert(p Pending) CommandVerdict {
	switch p.Status {
	case Initializing:
		return refuse("the session has not run yet")
	case Error:
		return CommandVerdict{Refused: InError(p.Reason)}
	default:
		return CommandVerdict{}
	}
}

// judgeRevertFiles judges a revert to a bundle. It would lose a turn that waits for an answer,
// together with the sandbox.
func judgeRevertFiles(p Pending) CommandVerdict {
	if p.Parked {
		return refuse("a turn waits for an answer to a question; answer it, or abort the turn, before a revert of files")
	}
	return judgeRevert(p)
}

func judgeRecover(p Pending) CommandVerdict {
	switch p.Status {
	case Error:
		return CommandVerdict{Already: len(p.has(CommandDrop)) > 0} // recovers the session
	case Running, Restoring:
		return CommandVerdict{Already: true}
	case Hibernated, Hibernating:
		return refuse("the session is not in error but %s; POST wake or a prompt to wake it", p.Status)
	default:
		return refuse("the session is not in error but %s", p.Status)
	}
}

// BeforePrompts reports whether a pending command of this kind is executed before the next prompt.
func (k CommandKind) BeforePrompts() bool {
	switch k {
	case CommandStop, CommandHibernate, CommandRestart, CommandDrop, CommandRevert, CommandRevertFiles, CommandSync:
		return true
	default:
		return false
	}
}

// EndedBy returns the status with which a transition ends a pending command; pending if it does
// not.
func (c Command) EndedBy(t Transition) (status CommandStatus, reason string) {
	switch t.To {
	case Terminated:
		if c.Kind == CommandStop {
			return CommandApplied, c.Reason
		}
		return CommandSuperseded, ReasonSessionTerminated
	case Error:
		if c.Kind != CommandStop && c.Kind != CommandAbort {
			return CommandRefused, ReasonInError
		}
	case Hibernating:
		return c.endedByHibernation(t.Reason)
	case Restoring:
		if c.Kind == CommandRecover || c.Kind == CommandDrop && t.Event == EventRecover && t.Reason == ReasonDropped {
			return CommandApplied, c.Reason
		}
	case Running:
		if c.Kind == CommandWake || c.Kind == CommandRecover {
			return CommandApplied, c.Reason
		}
	}
	return CommandPending, ""
}

func (c Command) endedByHibernation(reason string) (CommandStatus, string) {
	unsaved := reason == ReasonDropped || reason == ReasonLost
	switch c.Kind {
	case CommandHibernate, CommandRestart:
		return CommandApplied, c.Reason // a move continues with another command: see Moves
	case CommandSync:
		if unsaved {
			return CommandSuperseded, reason
		}
		return CommandApplied, c.Reason
	case CommandDrop:
		if reason == ReasonDropped {
			return CommandApplied, c.Reason
		}
		return CommandSuperseded, reason
	default:
		return CommandPending, ""
	}
}

// Moves reports whether the session moves to a new sandbox: it wakes immediately after it has
// hibernated. ended are the commands that the transition ends.
func (t Transition) Moves(ended []Command) bool {
	if t.To != Hibernating {
		return false
	}
	has := func(kind CommandKind) bool {
		return slices.ContainsFunc(ended, func(c Command) bool { return c.Kind == kind })
	}
	return !has(CommandHibernate) && !has(CommandDrop) &&
		(t.Reason == ReasonLifetime || t.Reason == ReasonRestart || has(CommandRestart))
}

// EndedByRun returns the status with which the end of a run ends its abort: applied if the run was
// cancelled because of the abort.
func (c Command) EndedByRun(outcome Outcome, reason string) (status CommandStatus, because string) {
	if outcome == OutcomeCancelled && (reason == ReasonAborted || reason == ReasonSteered) {
		return CommandApplied, c.Reason
	}
	return CommandSuperseded, cmp.Or(c.Reason, ReasonRunEnded)
}

// ForWorkflow returns commands in the form in which the workflow of a session in that state
// executes them. A revert with files becomes a restart of the sandbox, or the wake of a sleeping
// session: the subsequent restore performs the revert.
func ForWorkflow(commands []Command, status State) []Command {
	out := make([]Command, 0, len(commands))
	for _, c := range commands {
		if c.Kind == CommandRevertFiles {
			switch status {
			case Running:
				c.Kind, c.PromptID = CommandRestart, ""
			case Hibernated:
				c.Kind, c.PromptID = CommandWake, ""
			default:
				continue // the workflow reads pending commands when it has left that state
			}
		}
		out = append(out, c)
	}
	return out
}

// Look is the state that a workflow reads after a signal: all pending commands, and the queued
// prompts, of which the first are listed.
type Look struct {
	Status      State
	Commands    []Command
	Waiting     []QueuedPrompt
	Queued      int64 // number of queued prompts, including those in Waiting
	IdleTimeout time.Duration
}

// MaxWaitingSeen bounds the prompts that a Look lists.
const MaxWaitingSeen = 16

// Commanded is the result of a submitted command.
type Commanded struct {
	Session Session  // after the command
	Command *Command // nil if there was nothing to do
	Notify  bool     // the workflow must be signalled
}

// JudgeRevert returns why an agent cannot be reverted to its state before a prompt; nil if it can.
func JudgeRevert(p Prompt) *failure.Error {
	switch {
	case p.JoinedTo != "" && p.RunID != "":
		return failure.Errorf(failure.IllegalState, "the prompt was joined to %s; revert to the state before that prompt", p.JoinedTo)
	case p.Status == PromptQueued:
		return failure.Errorf(failure.IllegalState, "the prompt is queued and has not been run; withdraw it")
	case p.RunID == "":
		return failure.Errorf(failure.IllegalState, "the prompt has never been run")
	case p.Reason == ReasonReverted:
		return failure.Errorf(failure.IllegalState, "the agent has already been reverted to its state before this prompt")
	}
	return nil
}
