package codex_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/agent/codex"
	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/transcript"
)

// older contains rollouts as older versions wrote them.
var older = map[string]string{
	"with payloads": `{"timestamp":"2025-09-01T10:00:00.000Z","type":"session_meta","payload":{"id":"t","timestamp":"2025-09-01T10:00:00.000Z","cwd":"/w","originator":"codex_cli_rs","cli_version":"0.36.0","instructions":null}}
{"timestamp":"2025-09-01T10:00:01.000Z","type":"response_item","payload":{"type":"message","role":"user","content":[{"type":"input_text","text":"<environment_context>\n</environment_context>"}]}}
{"timestamp":"2025-09-01T10:00:01.000Z","type":"response_item","payload":{"type":"message","role":"user","content":[{"type":"input_text","text":"list it"}]}}
{"timestamp":"2025-09-01T10:00:01.000Z","type":"event_msg","payload":{"type":"user_message","message":"list it","kind":"plain"}}
{"timestamp":"2025-09-01T10:00:02.000Z","type":"event_msg","payload":{"type":"agent_reasoning","text":"**Look**"}}
{"timestamp":"2025-09-01T10:00:02.000Z","type":"response_item","payload":{"type":"reasoning","id":"rs_1","summary":[{"type":"summary_text","text":"**Look**"},{"type":"summary_text","text":"around"}],"content":null,"encrypted_content":"x"}}
{"timestamp":"2025-09-01T10:00:03.000Z","type":"response_item","payload":{"type":"function_call","name":"shell","arguments":"{\"command\":[\"ls\"]}","call_id":"call_1"}}
{"timestamp":"2025-09-01T10:00:03.000Z","type":"response_item","payload":{"type":"function_call","name":"shell","arguments":"{\"command\":[\"false\"]}","call_id":"call_2"}}
{"timestamp":"2025-09-01T10:00:04.000Z","type":"response_item","payload":{"type":"function_call_output","call_id":"call_1","output":"{\"output\":\"a.txt\\n\",\"metadata\":{\"exit_code\":0,\"duration_seconds\":0.1}}"}}
{"timestamp":"2025-09-01T10:00:04.000Z","type":"response_item","payload":{"type":"function_call_output","call_id":"call_2","output":"{\"output\":\"no\\n\",\"metadata\":{\"exit_code\":1}}"}}
{"timestamp":"2025-09-01T10:00:05.000Z","type":"response_item","payload":{"type":"custom_tool_call","name":"apply_patch","input":"*** Begin Patch","call_id":"call_3"}}
{"timestamp":"2025-09-01T10:00:05.000Z","type":"event_msg","payload":{"type":"agent_message","message":"There is a.txt."}}
{"timestamp":"2025-09-01T10:00:05.000Z","type":"response_item","payload":{"type":"message","role":"assistant","content":[{"type":"output_text","text":"There is a.txt."}]}}
{"timestamp":"2025-09-01T10:00:06.000Z","type":"event_msg","payload":{"type":"turn_aborted","reason":"interrupted"}}
`,
	"of bare lines": `{"id":"t","timestamp":"2025-09-01T10:00:00.000Z","instructions":null}
{"record_type":"state"}
{"type":"message","id":null,"role":"user","content":[{"type":"input_text","text":"list it"}]}
{"type":"reasoning","id":"rs_1","summary":[{"type":"summary_text","text":"**Look**"},{"type":"summary_text","text":"around"}]}
{"type":"function_call","name":"shell","arguments":"{\"command\":[\"ls\"]}","call_id":"call_1"}
{"type":"function_call_output","call_id":"call_1","output":"{\"output\":\"a.txt\\n\",\"metadata\":{\"exit_code\":0}}"}
{"type":"message","id":null,"role":"assistant","content":[{"type":"output_text","text":"There is a.txt."}]}
`,
}

func TestRolloutsOfOlderVersionsAreRead(t *testing.T) {
	t.Parallel()
	want := map[string][]string{
		"with payloads": {
			"t/3 user_message complete list it", "rs_1 thinking complete **Look**\n\naround",
			`call_1 tool_use success {"command":["ls"]}`, `call_2 tool_use error {"command":["false"]}`,
			`call_1/result tool_result success "a.txt\n"`, `call_2/result tool_result error "Process exited with code 1\nOutput:\nno\n"`,
			`call_3 tool_use aborted {"input":"*** Begin Patch"}`, "t/13 assistant_text complete There is a.txt.",
		},
		"of bare lines": {
			"t/3 user_message complete list it", "rs_1 thinking complete **Look**\n\naround",
			`call_1 tool_use success {"command":["ls"]}`, `call_1/result tool_result success "a.txt\n"`,
			"t/7 assistant_text complete There is a.txt.",
		},
	}
	for name, rollout := range older {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, err := codex.New().Parse([]transcript.File{{Path: "/sessions/rollout-1-t.jsonl", Data: []byte(rollout)}})
			require.NoError(t, err)
			require.Len(t, c.Threads, 1)
			require.Equal(t, want[name], short(c.Threads[0].Blocks))
		})
	}
}

func short(blocks []conversation.Block) []string {
	var out []string
	for _, b := range blocks {
		words := []string{b.ID, string(b.Type), string(b.Status), b.Content + string(b.Input) + string(b.Output)}
		out = append(out, strings.Join(words, " "))
	}
	return out
}
