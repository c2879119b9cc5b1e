package activities

import (
	"context"

	"go.temporal.io/sdk/activity"

	"github.com/overwinter-dev/overwinter/internal/run"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// commandStore stores the pending commands of sessions.
type commandStore interface {
	// SessionLook returns the pending commands and prompts of a session, and records that the workflow run has read them.
	SessionLook(ctx context.Context, sessionID, workflowRunID string) (session.Look, error)
	// SessionReclaim is SessionLook for a session that may have an attendant, whose attendance ends unless a run is in
	// progress.
	SessionReclaim(ctx context.Context, sessionID, workflowRunID string) (run.Reclaimed, error)
	// CommandSubmit stores a pending command, with its reason if no client sent it.
	CommandSubmit(ctx context.Context, c session.Command) (session.Commanded, error)
	// CommandEnd ends a command that succeeded or failed without a transition.
	CommandEnd(ctx context.Context, sessionID, commandID string, status session.CommandStatus, reason string) error
}

// commands are the activities for pending commands.
type commands struct{ store commandStore }

// ReadWaiting returns the pending commands and prompts of a session, and records that this run of its workflow has read them.
func (g *commands) ReadWaiting(ctx context.Context, in SessionRef) (Waiting, error) {
	look, err := g.store.SessionLook(ctx, in.SessionID, activity.GetInfo(ctx).WorkflowExecution.RunID)
	if err != nil {
		return Waiting{}, stored(err)
	}
	return waitingOf(look), nil
}

// TakeBack is ReadWaiting for a session that may have an attendant. Unless a run is in progress, the attendance ends.
func (g *commands) TakeBack(ctx context.Context, in SessionRef) (Reclaimed, error) {
	taken, err := g.store.SessionReclaim(ctx, in.SessionID, activity.GetInfo(ctx).WorkflowExecution.RunID)
	if err != nil {
		return Reclaimed{}, stored(err)
	}
	return Reclaimed{Waiting: waitingOf(taken.Look), Run: taken.Run, LastActivity: taken.LastActivity}, nil
}

func waitingOf(look session.Look) Waiting {
	return Waiting{
		Commands: pendingCommands(look.Commands, look.Status), Next: look.Waiting, Queued: look.Queued, IdleTimeout: look.IdleTimeout,
	}
}

// EndCommand ends a command that no transition ends. One that has ended keeps its end.
func (g *commands) EndCommand(ctx context.Context, in CommandEnding) error {
	return stored(g.store.CommandEnd(ctx, in.SessionID, in.CommandID, in.Status, in.Reason))
}

// RecordStop stores a stop that no client requested, and returns the reason of the pending stop,
// which a client may have requested earlier.
func (g *commands) RecordStop(ctx context.Context, in StopRequest) (string, error) {
	done, err := g.store.CommandSubmit(ctx, session.Command{SessionID: in.SessionID, Kind: session.CommandStop, Reason: in.Reason})
	if err != nil || done.Command == nil {
		return in.Reason, stored(err)
	}
	return done.Command.Reason, nil
}

func pendingCommands(commands []session.Command, status session.State) []PendingCommand {
	var out []PendingCommand
	for _, c := range session.ForWorkflow(commands, status) {
		out = append(out, PendingCommand{ID: c.ID, Kind: c.Kind, Force: c.Force, PromptID: c.PromptID, RunID: c.RunID, Reason: c.Reason})
	}
	return out
}
