package agent

import (
	"fmt"
	"strings"

	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// MaxStderr is the maximum length of a process's final output in an exit frame.
const MaxStderr = 4 << 10

// ReadExit returns the end of a turn whose process has exited: aborted if the runner killed it for
// an abort, otherwise failed, with an event that reports the known details, including up to most
// bytes of the final output.
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

// message describes for people how a process exited during a turn.
func (r ExitReport) message(most int) string {
	msg := fmt.Sprintf("the agent ended with exit code %d in the middle of a turn", r.Code)
	if r.Signal != "" {
		msg = fmt.Sprintf("the agent was ended by a signal (%s) in the middle of a turn", r.Signal)
	}
	if stderr := strings.TrimSpace(r.Stderr); stderr != "" {
		if excess := len(stderr) - most; excess > 0 {
			stderr = strings.ToValidUTF8(stderr[excess:], "")
		}
		msg += ": " + stderr
	}
	return msg
}
