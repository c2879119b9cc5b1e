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
	"github.com/overwinter-dev/overwinter/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

type message = map[string]any

// ask posts messages and returns status and body. It offers tools, as in a conversation.
func ask(t *testing.T, s *modelserver.Server, stream bool, messages ...message) (int, string, error) {
	t.Helper()
	body, err := json.Marshal(message{
		"model": "opus", "stream": stream, "messages": messages, "tools": []message{{"name": "Bash"}}, "thinking": message{"type": "adaptive"},
	})
	require.NoError(t, err)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL()+"/v1/messages?beta=true", bytes.NewReader(body))
	require.NoError(t, err)
	r.Header.Set("X-Api-Key", "sk-1")
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(r)
	require.NoError(t, err)
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(data), err
}

func user(text string) message { return message{"role": "user", "content": text} }

var (
	model  = message{"role": "assistant", "content": "x"}
	result = message{"role": "user", "content": []message{{"type": "tool_result", "tool_use_id": "t"}, {"type": "text", "text": "<system-reminder>r</system-reminder>"}}}
)

func server(t *testing.T) *modelserver.Server {
	t.Helper()
	s := modelserver.New(map[string][]modelserver.Step{
		"tool":   {{Thinking: "Hm.", Text: "First.", Calls: []modelserver.Call{modelserver.Bash("ls -la /somewhere")}}, {Text: "Second."}},
		"recall": {{Recall: true}},
		"broken": {{Status: 529}},
		"cut":    {{Text: strings.Repeat("word ", 10), Cut: true}},
	})
	t.Cleanup(s.Close)
	return s
}

func TestHistorySelectsStep(t *testing.T) {
	t.Parallel()
	s := server(t)
	for want, messages := range map[string][]message{
		"First.":                                {user("{{tool}} go")},
		"Second.":                               {user("{{tool}} go"), model, result},
		"There is nothing left to do.":          {user("{{tool}} go"), model, result, model, user("and now?")},
		"2 prompts; the first was: {{tool}} go": {user("{{tool}} go"), model, user("{{recall}}")},
	} {
		status, body, err := ask(t, s, false, messages...)
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, status)
		require.Contains(t, body, want)
	}
	_, again, err := ask(t, s, false, user("{{tool}} go"))
	require.NoError(t, err)
	require.Contains(t, again, "First.", "a request repeated is answered again")
}

func TestRequestsAreRecorded(t *testing.T) {
	t.Parallel()
	s := server(t)
	_, _, err := ask(t, s, false, user("{{tool}} go"), model, result)
	require.NoError(t, err)
	require.Equal(t, []modelserver.Request{{
		Model: "opus", Key: "sk-1", Tools: []string{"Bash"}, Prompts: []string{"{{tool}} go"}, Answers: 1, Results: 1,
	}}, s.Requests())
}

func TestResponsesAreStreamed(t *testing.T) {
	t.Parallel()
	status, body, err := ask(t, server(t), true, user("{{tool}} go"))
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, status)
	var kinds []string
	input := ""
	for line := range strings.Lines(body) {
		data, ok := strings.CutPrefix(line, "data: ")
		if !ok {
			continue
		}
		var e struct {
			Type  string `json:"type"`
			Delta struct {
				JSON string `json:"partial_json"`
			} `json:"delta"`
		}
		require.NoError(t, json.Unmarshal([]byte(data), &e))
		input += e.Delta.JSON
		if len(kinds) == 0 || kinds[len(kinds)-1] != e.Type {
			kinds = append(kinds, e.Type)
		}
	}
	part := []string{"content_block_start", "content_block_delta", "content_block_stop"}
	want := append([]string{"message_start"}, append(append(append(part, part...), part...), "message_delta", "message_stop")...)
	require.Equal(t, want, kinds)
	require.JSONEq(t, `{"command":"ls -la /somewhere","description":"Run a command"}`, input)
}

func TestScriptedFailures(t *testing.T) {
	t.Parallel()
	s := server(t)
	status, body, err := ask(t, s, true, user("{{broken}} go"))
	require.NoError(t, err)
	require.Equal(t, 529, status)
	require.JSONEq(t, `{"type":"error","error":{"type":"overloaded_error","message":"scripted error 529"}}`, body)
	_, body, err = ask(t, s, true, user("{{cut}} go"))
	require.Error(t, err)
	require.Contains(t, body, "word")
	require.NotContains(t, body, "message_stop")
}
