package acp

import (
	"encoding/json"
	"fmt"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/agent/acp/acpformat"
	"github.com/overwinter-dev/overwinter/internal/agent/stdio"
)

// Answer returns the line that answers a permission request. The request's options are the
// question's suggestions. The protocol accepts no text with a rejection.
func Answer(q agent.Question, a agent.Answer) ([]byte, error) {
	var kinds []string
	switch a.Decision {
	case agent.DecisionReject:
		kinds = []string{"reject_once", "reject_always"}
	case agent.DecisionOnce:
		kinds = []string{"allow_once"}
	case agent.DecisionSession, agent.DecisionAlways:
		kinds = []string{"allow_always", "allow_once"}
	default:
		return nil, fmt.Errorf("answer question %s: %q is not a decision", q.ID, a.Decision)
	}
	var options []acpformat.Option
	if len(q.Suggestions) > 0 {
		if err := json.Unmarshal(q.Suggestions, &options); err != nil {
			return nil, fmt.Errorf("answer question %s: its options: %w", q.ID, err)
		}
	}
	chosen, ok := acpformat.Choose(options, kinds, a.Decision == agent.DecisionAlways)
	if !ok && a.Decision != agent.DecisionReject {
		return nil, fmt.Errorf("answer question %s: the agent does not offer %q", q.ID, a.Decision)
	}
	return stdio.Command{
		Type: stdio.Answer, ID: q.ID, Data: acpformat.Encode(acpformat.AnswerData{Option: chosen, Allowed: a.Decision != agent.DecisionReject}),
	}.Encode()
}
