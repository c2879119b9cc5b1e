package workflows

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/overwinter-dev/overwinter/internal/contract"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// view answers the query `state`. It changes nothing.
func (l *life) view() (contract.StateView, error) {
	v := contract.StateView{
		SessionID: l.id, Status: l.state, StatusReason: l.reason,
		Generation: l.generation, TransitionNo: l.transitionNo, Doing: l.doing,
		Queue: l.queue.IDs(), Wants: l.wants, LastActivity: l.lastActivity.Truncate(time.Millisecond),
		IdleTimeout: l.idleTimeout.String(), Continued: l.continued,
	}
	if run := cmp.Or(l.turn, l.parked); run != nil {
		v.RunID, v.PromptID = run.RunID, run.PromptID
	}
	return v, nil
}

// showDoing describes the session's activity in the current details of the workflow, which
// Temporal's UI shows. Current details add no events to the history.
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
	if l.title != "" {
		lines = append(lines, "- title: "+l.title)
	}
	if next := l.nextStep(); next != "" {
		lines = append(lines, "- to do: "+next)
	}
	if l.turn != nil {
		lines = append(lines, fmt.Sprintf("- prompt #%d `%s`, run `%s`", l.turn.Ordinal, l.turn.PromptID, l.turn.RunID))
	}
	if l.last.Outcome != "" {
		lines = append(lines, "- last turn: "+l.last.String())
	}
	where := fmt.Sprintf("- agent %s, generation %d", l.agent, l.generation)
	if l.workspace != "" {
		where += ", repository " + l.workspace
	}
	if l.sandboxID != "" {
		where += fmt.Sprintf(", sandbox `%s`", l.sandboxID)
	}
	lines = append(lines, where, fmt.Sprintf("- %d queued, idle after %s, last activity %s",
		l.queue.Len(), l.idleTimeout, l.lastActivity.UTC().Format("2006-01-02 15:04:05 MST")))
	if l.url != "" {
		lines = append(lines, fmt.Sprintf("- [session](%s), [prompts](%[1]s/prompts), [conversation](%[1]s/blocks)", l.url))
	}
	workflow.SetCurrentDetails(ctx, strings.Join(lines, "\n"))
}

// explainsItself is the change since which a memo describes the session, and a hibernated session
// has its own timer.
const explainsItself = "explains-itself"

func (l *life) explains(ctx workflow.Context) bool {
	return workflow.GetVersion(ctx, explainsItself, workflow.DefaultVersion, 1) != workflow.DefaultVersion
}

// note writes the memo, which can be read when no worker answers and after the workflow is closed:
// the session, its address, and the next step for a person. Each change is an event in the history;
// changes are rare. The memo has the title only if a person has set it, so that no text of a prompt
// enters Temporal.
func (l *life) note(ctx workflow.Context) error {
	if !l.explains(ctx) {
		return nil
	}
	var failed, toDo string
	if l.state == session.Error {
		failed, toDo = l.reason, l.nextStep()
	}
	memo, changed := map[string]string{}, map[string]any{}
	for _, entry := range [][2]string{
		{"title", l.title}, {"agent", l.agent}, {"owner", l.owner}, {"repository", l.workspace}, {"session", l.url}, {"error", failed}, {"toDo", toDo},
	} {
		name, value := entry[0], entry[1]
		memo[name] = value
		if known, ok := l.memo[name]; ok && value == known {
			continue
		}
		changed[name] = value // this run inherits the memo of the earlier run
		if value == "" {
			changed[name] = nil // nil deletes the field
		}
	}
	if len(changed) == 0 {
		return nil
	}
	if err := workflow.UpsertMemo(ctx, changed); err != nil {
		return fmt.Errorf("upsert memo: %w", err)
	}
	l.memo = memo
	return nil
}

// nextStep describes, for people, the next step for a session that does not continue by itself.
func (l *life) nextStep() string {
	switch l.state {
	case session.Error:
		return "fix the cause, then `overwinter session recover " + l.id + "`; or `session stop` to end it"
	case session.Hibernated:
		if l.parked != nil {
			return "answer the question of the agent, which waits: `overwinter session answer " + l.id + "`"
		}
		return "nothing; a prompt or `overwinter session wake " + l.id + "` wakes it"
	default:
		return ""
	}
}

// why describes the reason for a timer. If several reasons have the same time, it returns the most
// important one.
func (l *life) why(doing string, until time.Time) string {
	switch {
	case l.turn != nil && until.Equal(l.interruptAt()):
		return "interrupts the turn, as the sandbox reaches the end of its life"
	case until.Equal(l.expiryNoticeAt()):
		return "announces that the session moves to a new sandbox"
	case l.turn == nil && l.state == session.Running && until.Equal(l.sleepNoticeAt()):
		return "announces that the session hibernates"
	case l.turn != nil:
		return "reads pending work during the turn: " + doing
	case l.state == session.Running && until.Equal(l.moveAt()):
		return "moves to a new sandbox, because this one reaches its maximum lifetime"
	case l.state == session.Running && until.Equal(l.idleAt()):
		return "hibernates, unless something happens first"
	case l.state == session.Error:
		return "retries, or terminates the sandbox that it has kept"
	case l.state == session.Hibernated && l.parked != nil:
		return "wakes, because a question has expired"
	case l.state == session.Hibernated:
		return "closes this workflow until it is needed"
	default:
		return doing
	}
}

// endedTurn describes an ended turn in the current details.
type endedTurn struct {
	Ordinal int64
	Outcome session.Outcome
	Reason  string
}

func (t endedTurn) String() string {
	out := string(t.Outcome)
	if t.Ordinal > 0 {
		out = fmt.Sprintf("#%d %s", t.Ordinal, out)
	}
	if t.Reason != "" {
		out += " (" + t.Reason + ")"
	}
	return out
}
