package workflows

import (
	"go.temporal.io/sdk/workflow"

	"github.com/overwinter-dev/overwinter/activities"
)

// problemsReported is the change since which a failed checkpoint or revert is reported in the session's events.
const problemsReported = "problems-reported"

// reportProblem reports to readers of the session's events that a command has failed. The session continues.
func (l *life) reportProblem(ctx workflow.Context, code string, cause error) error {
	workflow.GetLogger(ctx).Warn("a command failed", "session_id", l.id, "code", code, "error", cause)
	if workflow.GetVersion(ctx, problemsReported, workflow.DefaultVersion, 1) == workflow.DefaultVersion {
		return nil
	}
	problem := activities.Problem{SessionID: l.id, Code: code, Message: activities.ReasonOf(cause)}
	return l.record(ctx, "report what failed", control.TellProblem, problem, nil)
}
