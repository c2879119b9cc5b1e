package turn

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/question"
)

var (
	allowed = question.Question{ID: "q1", Answer: &question.Answer{Decision: question.ForSession}, Asked: question.Asked{
		ID: "1", Kind: question.Permission, ToolName: "Bash", Input: json.RawMessage(`{"command":"ls", "n":1}`),
	}}
	rejected = question.Question{ID: "q2", Answer: &question.Answer{Decision: question.Reject, Message: "Not before tea."}, Asked: question.Asked{
		ID: "2", Kind: question.Permission, ToolName: "Write", Input: json.RawMessage(`""`),
	}}
	chosen = question.Question{ID: "q3", Answer: &question.Answer{Decision: question.Once, Answers: question.TextEach(map[string]string{"Which?": "Blue"})}, Asked: question.Asked{
		ID: "3", Kind: question.Inquiry, Title: "Which?", Inquiries: []question.Item{{Question: "Which?"}},
	}}
	expired = question.Question{ID: "q4", Asked: question.Asked{ID: "4", Kind: question.Permission, ToolName: "Bash", Input: json.RawMessage(`{"command":"rm"}`)}}
)

// TestResumedAgentGetsAnswers checks that the agent's input lists every question with its outcome.
func TestResumedAgentGetsAnswers(t *testing.T) {
	t.Parallel()
	require.Equal(t, `You were paused while you waited for people, and have been resumed. Calls that were waiting have not run. Other running calls and subagents were stopped and have no result.

You asked for permission to use Bash with {"command":"ls", "n":1}. It was allowed. Make the call again.

You asked for permission to use Write with "". It was rejected. Not before tea.

You asked: Which? The answer to "Which?" is: Blue

You asked for permission to use Bash with {"command":"rm"}. No answer came in time. Do not do it; find another way or end your turn.

Continue with what you were doing.`, continuation([]question.Question{allowed, rejected, chosen, expired}))
}

// TestRepeatedQuestionGetsAnswerOnce checks that a repeated call matches regardless of the
// formatting of its JSON, and that another call is another question.
func TestRepeatedQuestionGetsAnswerOnce(t *testing.T) {
	t.Parallel()
	a := &attempt{convert: &convert{}, answers: []question.Question{allowed, expired}}
	again, other := allowed.Asked, allowed.Asked
	again.ID, again.Input = "7", json.RawMessage(`{"n":1,"command":"ls"}`)
	other.Input = json.RawMessage(`{"command":"ls /"}`)
	require.Nil(t, a.givenAnswer(other))
	require.Equal(t, allowed.Answer, a.givenAnswer(again))
	require.Nil(t, a.givenAnswer(again), "it was given")
	require.Equal(t, &question.Answer{Decision: question.Reject, Message: answerTimedOut}, a.givenAnswer(expired.Asked))
	require.Equal(t, []string{"q1", "q4"}, a.given, "so that the next attempt knows")
}
