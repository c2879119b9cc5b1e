package agent

import (
	"fmt"
	"strings"

	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// MaxStderr is as much of a process's final output as an exit frame has.
const MaxStderr = 4 << 10

// ReadExit returns how a turn ends whose process has exited: aborted if the runner ended it for that,
// otherwise failed, with an event that reports what is
// known, with up to most bytes of its final output.
func ReadExit(f Frame, most int) (TurnEnd, []conversation.Event) {
	report, err := ParseExit(f.Data)
	if err != nil {
		report = ExitReport{Code: -1, Stderr: "the exit report cannot be read"}
	}
	if report.Interrupted {
		return TurnEnd{Outcome: session.OutcomeCancelled, Reason: session.ReasonAborted}, nil
	}
	return TurnEnd{Outcome: session.OutcomeFailed, Reason: session.ReasonAgentCrashed}, []conversation.Event{{
		Type: conversation.EventError, At: f.At.UTC(),
		Data: conversation.Problem{Code: session.ReasonAgentCrashed, Message: report.message(most)},
	}}
}

// message describes a process that has ended too early, for people.
func (r ExitReport) message(most int) string {
	msg := fmt.Sprintf("the agent ended with exit code %d in the middle of a turn", r.Code)
	if r.Signal != "" {
		msg = fmt.Sprintf("the agent was ended by a signal (%s) in the middle of a turn", r.Signal)
	}
	if said := strings.TrimSpace(r.Stderr); said != "" {
		if over := len(said) - most; over > 0 {
			said = strings.ToValidUTF8(said[over:], "")
		}
		msg += ": " + said
	}
	return msg
}
