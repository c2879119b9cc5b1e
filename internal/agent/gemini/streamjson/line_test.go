package streamjson_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/agent/gemini/streamjson"
	"github.com/overwinter-dev/overwinter/internal/session"
)

func read(t *testing.T, line string) streamjson.Line {
	t.Helper()
	var l streamjson.Line
	require.NoError(t, json.Unmarshal([]byte(line), &l))
	return l
}

func TestOnlyMessageIsAnswerOrPrompt(t *testing.T) {
	t.Parallel()
	require.True(t, read(t, `{"type":"message","role":"assistant","content":"a"}`).IsAnswer())
	require.True(t, read(t, `{"type":"message","role":"user","content":"a"}`).IsPrompt())
	require.False(t, read(t, `{"type":"message","role":"user"}`).IsAnswer())
	require.False(t, read(t, `{"type":"tool_use","role":"assistant"}`).IsAnswer())
	require.False(t, read(t, `{"type":"init","role":"user"}`).IsPrompt())
}

func TestCallOfSubagentIsNamedForIt(t *testing.T) {
	t.Parallel()
	require.Equal(t, "Delegating to agent 'helper'",
		read(t, `{"type":"tool_use","tool_id":"a","tool_name":"invoke_agent","parameters":{"agent_name":"helper"}}`).Began().Title)
	require.Empty(t, read(t, `{"type":"tool_use","tool_id":"a","tool_name":"ls","parameters":{"dir":"."}}`).Began().Title)
}

func TestResultIsOutputOrError(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]struct{ status, result string }{
		`{"type":"tool_result","tool_id":"a","status":"success","output":"x"}`:                             {"success", `{"output":"x"}`},
		`{"type":"tool_result","tool_id":"a","status":"error","output":"x"}`:                               {"error", `{"error":"x"}`},
		`{"type":"tool_result","tool_id":"a","status":"error","output":"x","error":{"message":"refused"}}`: {"error", `{"error":"refused"}`},
	} {
		c := read(t, line).Ended("ls", json.RawMessage(`{}`))
		require.Equal(t, want.status, c.Status, line)
		require.JSONEq(t, `[{"functionResponse":{"id":"a","name":"","response":`+want.result+`}}]`, string(c.Result), line)
	}
}

func TestFailureReasonIsNearestError(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		`{"type":"result","status":"error","error":{"message":"no quota"}}`: "no quota",
		`{"type":"result","status":"error"}`:                                "said before",
	} {
		outcome, reason := read(t, line).Outcome("said before")
		require.Equal(t, session.OutcomeFailed, outcome)
		require.Equal(t, want, reason)
	}
	_, reason := read(t, `{"type":"result","status":"error"}`).Outcome("")
	require.Equal(t, "the agent does not say why", reason)
	outcome, reason := read(t, `{"type":"result","status":"success"}`).Outcome("a warning")
	require.Equal(t, session.OutcomeCompleted, outcome)
	require.Empty(t, reason)
}
