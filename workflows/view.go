package workflows

import (
	"fmt"
	"strings"

	"go.temporal.io/sdk/workflow"

	"github.com/overwinter-dev/overwinter/internal/contract"
)

// view answers the query `state`. It changes nothing.
func (l *life) view() (contract.StateView, error) {
	v := contract.StateView{
		SessionID: l.id, Status: l.state, StatusReason: l.reason,
		Generation: l.generation, TransitionNo: l.transitionNo, Doing: l.doing,
		Queue: l.queue.IDs(), Wants: l.wants, LastActivity: l.lastActivity,
		IdleTimeout: l.idleTimeout.String(), Continued: l.continued,
	}
	if l.turn != nil {
		v.RunID, v.PromptID = l.turn.RunID, l.turn.PromptID
	}
	return v, nil
}

// showDoing puts what the session does into the current details that Temporal UI
// shows; they cost no history.
func (l *life) showDoing(ctx workflow.Context, doing string) {
	l.doing = doing
	if l.delay.code != "" {
		doing += "; " + l.delay.String()
		l.doing = doing
	}
	head := fmt.Sprintf("**%s**", l.state)
	if l.reason != "" {
		head += fmt.Sprintf(" (%s)", l.reason)
	}
	lines := []string{head + " · " + doing, ""}
	if l.turn != nil {
		lines = append(lines, fmt.Sprintf("- prompt `%s`, run `%s`", l.turn.PromptID, l.turn.RunID))
	}
	where := fmt.Sprintf("- agent %s, generation %d", l.agent, l.generation)
	if l.sandboxID != "" {
		where += fmt.Sprintf(", sandbox `%s`", l.sandboxID)
	}
	lines = append(lines, where, fmt.Sprintf("- %d queued, idle after %s, last activity %s",
		l.queue.Len(), l.idleTimeout, l.lastActivity.UTC().Format("2006-01-02 15:04:05 MST")))
	workflow.SetCurrentDetails(ctx, strings.Join(lines, "\n"))
}
