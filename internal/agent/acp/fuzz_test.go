package acp_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/agent/acp"
	"github.com/overwinter-dev/overwinter/internal/agent/agenttest/capture"
	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/session"
	"github.com/overwinter-dev/overwinter/internal/transcript"
	"github.com/overwinter-dev/overwinter/internal/usage"
)

var seeds = []string{
	`{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"x"}}}}
{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"tool_call","toolCallId":"c","title":"x","rawInput":{"a":1}}}}
{"jsonrpc":"2.0","id":1,"method":"session/request_permission","params":{"toolCall":{"toolCallId":"c"},"options":[]}}
{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"tool_call_update","toolCallId":"c","status":"completed","rawOutput":{"b":2}}}}
{"jsonrpc":"2.0","id":2,"result":{"stopReason":"end_turn","usage":{"inputTokens":1,"outputTokens":2}}}`,
	`{"overwinter":{"type":"run","runId":"run_1"}}
{"overwinter":{"type":"block","data":{"id":"c","type":"tool_use","status":"running","name":"x"}}}
{"jsonrpc":"2.0","method":"session/update","params":{"update":{"sessionUpdate":"agent_thought_chunk","content":{"type":"text","text":"x"}}}}
{"overwinter":{"type":"block","data":{"id":"run_1/0","type":"thinking","status":"complete","content":"x"}}}
{"overwinter":{"type":"block","data":{"id":"c","type":"tool_use","status":"success","name":"x"}}}
{"overwinter":{"type":"end","runId":"run_1","data":{"outcome":"completed"}}}`,
}

// FuzzTranslate checks the guarantees of the translator and the parser on any input: they never
// fail, a translator can resume from a state, and Cut closes every block.
func FuzzTranslate(f *testing.F) {
	for _, s := range seeds {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, data string) {
		capture.Translate(t, acp.New(), agent.RunContext{RunID: "run_1"}, data)
		capture.ParseAny(t, acp.New(), transcript.File{Path: "/x.jsonl", Data: []byte(data)})
	})
}

// TestStreamWithoutBridge checks the blocks and the end of the turn.
func TestStreamWithoutBridge(t *testing.T) {
	t.Parallel()
	tr, err := acp.New().NewTranslator(agent.RunContext{}, nil)
	require.NoError(t, err)
	var folder conversation.Folder
	var end *agent.TurnEnd
	for i, line := range strings.Split(seeds[0], "\n") {
		out, err := tr.Translate(agent.Frame{No: int64(i), Stream: agent.Stdout, At: time.Unix(1, 0), Data: []byte(line)})
		require.NoError(t, err)
		for _, e := range out.Events {
			folder.Add(e)
		}
		end = out.End
	}
	var got []string
	for _, b := range folder.Conversation().Threads[0].Blocks {
		got = append(got, strings.Join([]string{string(b.Type), string(b.Status), b.Content, b.Name, string(b.Input), string(b.Output)}, " "))
	}
	require.Equal(t, []string{`assistant_text complete x   `, `tool_use success  x {"a":1} `, `tool_result success    {"b":2}`}, got)
	require.Equal(t, session.OutcomeCompleted, end.Outcome)
	require.Equal(t, usage.Usage{InputTokens: 1, OutputTokens: 2, ToolCalls: 1}, end.Usage)
}

func TestStateIsSmall(t *testing.T) {
	t.Parallel()
	capture.LongText(t, acp.New(), agent.RunContext{RunID: "run_1"}, `{"overwinter":{"type":"run","runId":"run_1"}}`,
		func(text string) string {
			return `{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"` + text + `"}}}}`
		},
		func(id, text string) string {
			return `{"overwinter":{"type":"block","data":{"id":"` + id + `","type":"assistant_text","status":"complete","content":"` + text + `"}}}`
		})
}
