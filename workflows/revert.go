package workflows

import (
	"go.temporal.io/sdk/workflow"

	"github.com/overwinter-dev/overwinter/activities"
)

// revert takes the agent back to before a prompt, while no turn runs. What cannot be done leaves
// everything as it is; who asked sees it from the blocks that stay.
func (l *life) revert(ctx workflow.Context) error {
	request := activities.RevertRequest{
		SessionID: l.id, Generation: l.generation, SandboxID: l.sandboxID, PromptID: l.wants.Revert,
	}
	err := l.doUnlessStopped(ctx, "take the agent back to before prompt "+request.PromptID, saveOptions, control.RevertSession, request, nil)
	switch {
	case l.wants.Stop:
		return nil
	case activities.TypeOf(err) == activities.SandboxLost:
		l.loseSandbox() // and again when it is back
		return nil
	case err != nil:
		workflow.GetLogger(ctx).Warn("the agent was not taken back", "session_id", l.id, "prompt_id", request.PromptID, "error", err)
	}
	if l.wants.Revert == request.PromptID {
		l.wants.Revert = ""
	}
	l.lastActivity = workflow.Now(ctx)
	return nil
}
