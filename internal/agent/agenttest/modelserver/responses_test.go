package modelserver_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/agent/agenttest/modelserver"
)

// respond posts a request of OpenAI's Responses API and returns status and body.
func respond(t *testing.T, s *modelserver.Server, request message) (int, string, error) {
	t.Helper()
	body, err := json.Marshal(request)
	require.NoError(t, err)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL()+"/v1/responses", bytes.NewReader(body))
	require.NoError(t, err)
	r.Header.Set("Authorization", "Bearer sk-1")
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(r)
	require.NoError(t, err)
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(data), err
}

func inputMessage(role, text string) message {
	return message{"type": "message", "role": role, "content": []message{{"type": "input_text", "text": text}}}
}

func TestResponsesAPIFormat(t *testing.T) {
	t.Parallel()
	s := modelserver.New(map[string][]modelserver.Step{
		"tool": {
			{Thinking: "Hm.", Text: "First.", Calls: []modelserver.Call{modelserver.Exec("ls"), modelserver.Patch("a", "b")}},
			{Text: "Second: ", Recall: true},
		},
		"broken": {{Status: 500}},
		"cut":    {{Text: strings.Repeat("word ", 10), Cut: true}},
	})
	t.Cleanup(s.Close)
	tools := []message{
		{"type": "namespace", "name": "shell", "tools": []message{{"type": "function", "name": "exec_command"}}},
		{"type": "custom", "name": "apply_patch"},
	}
	input := []message{inputMessage("developer", "be good"), inputMessage("user", "<environment_context>x"), inputMessage("user", "{{tool}} go")}
	status, body, err := respond(t, s, message{"model": "m", "input": input, "tools": tools})
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, status)
	for _, want := range []string{
		`"type":"response.reasoning_summary_text.delta"`, `"delta":"First."`, `"namespace":"shell"`,
		`"arguments":"{\"cmd\":\"ls\"}"`, `"type":"custom_tool_call"`, `"type":"response.completed"`,
	} {
		require.Contains(t, body, want)
	}

	input = append(input,
		message{"type": "reasoning"}, message{"type": "message", "role": "assistant"}, message{"type": "function_call"},
		message{"type": "function_call_output"}, message{"type": "custom_tool_call_output"})
	_, body, err = respond(t, s, message{"model": "m", "input": input, "tools": tools})
	require.NoError(t, err)
	require.Contains(t, body, `"text":"Second: 1 prompts; the first was: {{tool}} go"`)
	requests := s.Requests()
	last := requests[len(requests)-1]
	require.Equal(t, "sk-1", last.Key)
	require.Contains(t, last.System, "be good")
	require.Equal(t, []string{"{{tool}} go"}, last.Prompts)
	require.Equal(t, 1, last.Answers)
	require.Equal(t, 2, last.Results)
	require.Contains(t, last.Offered, "apply_patch")

	status, body, err = respond(t, s, message{"model": "m", "input": []message{inputMessage("user", "{{broken}}")}})
	require.NoError(t, err)
	require.Equal(t, http.StatusInternalServerError, status)
	require.Contains(t, body, "scripted error 500")
	_, body, err = respond(t, s, message{"model": "m", "input": []message{inputMessage("user", "{{cut}}")}})
	require.Error(t, err)
	require.NotContains(t, body, "response.completed")
}

func TestJavaScriptCallsOnlyAvailableTools(t *testing.T) {
	t.Parallel()
	s := modelserver.New(map[string][]modelserver.Step{"tool": {{Calls: []modelserver.Call{modelserver.Exec("ls")}}}})
	t.Cleanup(s.Close)
	_, body, err := respond(t, s, message{"model": "m", "input": []message{
		{"type": "additional_tools", "tools": []message{{"type": "namespace", "name": "functions", "tools": []message{{"type": "custom", "name": "exec"}}}}},
		inputMessage("user", "{{tool}}"),
	}})
	require.NoError(t, err)
	require.Contains(t, body, `"input":"text(JSON.stringify(await tools.exec_command({\"cmd\":\"ls\"})))"`)
	require.Contains(t, body, `"namespace":"functions"`)
}
