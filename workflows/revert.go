package workflows

import (
	"go.temporal.io/sdk/workflow"

	"github.com/overwinter-dev/overwinter/activities"
	"github.com/overwinter-dev/overwinter/internal/problem"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// revert reverts the agent to its state before a prompt, while no turn runs. A failed revert
// changes nothing and is reported in the session's events.
func (l *life) revert(ctx workflow.Context) error {
	request := activities.RevertRequest{
		SessionID: l.id, Generation: l.generation, SandboxID: l.sandboxID, PromptID: l.wants.Revert,
	}
	command := l.pendingID(session.CommandRevert)
	again, err, recordErr := l.try(ctx, problem.RevertDelayed, "revert the agent to its state before prompt "+request.PromptID, control.RevertSession, request, nil)
	switch {
	case recordErr != nil:
		return recordErr
	case activities.TypeOf(err) == activities.StaleWorkflow:
		return err
	case l.wants.Stop || again:
		return nil
	case activities.TypeOf(err) == activities.SandboxLost:
		l.markSandboxLost() // the revert is retried in the next sandbox
		return nil
	case err != nil:
		if err := l.reportProblem(ctx, problem.RevertFailed, err); err != nil {
			return err
		}
	}
	if l.wants.Revert == request.PromptID {
		l.wants.Revert = ""
	}
	l.lastActivity = workflow.Now(ctx)
	return l.endCommand(ctx, command, err)
}
