package gemini_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/agent/agenttest/capture"
	"github.com/overwinter-dev/overwinter/internal/agent/gemini"
	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/transcript"
)

// translated folds lines of the program that were captured without a bridge.
func translated(t *testing.T, lines ...string) []conversation.Block {
	t.Helper()
	tr, err := gemini.New().NewTranslator(agent.RunContext{}, nil)
	require.NoError(t, err)
	var f conversation.Folder
	for i, line := range lines {
		out, err := tr.Translate(agent.Frame{No: int64(i), Stream: agent.Stdout, At: capture.Begun, Data: []byte(line)})
		require.NoError(t, err)
		for _, e := range out.Events {
			f.Add(e)
		}
	}
	for _, e := range tr.Cut(capture.Begun) {
		f.Add(e)
	}
	return f.Conversation().Threads[0].Blocks
}

func chunk(kind, text string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":%q,"content":{"type":"text","text":%q}}}}`, kind, text)
}

// contents returns the content of blocks.
func contents(blocks []conversation.Block) []string {
	var out []string
	for _, b := range blocks {
		out = append(out, string(b.Type)+": "+b.Content+b.Message)
	}
	return out
}

func TestTextBetweenThoughtsStays(t *testing.T) {
	t.Parallel()
	require.Equal(t, []string{"thinking: one", "assistant_text: first", "thinking: two", "assistant_text: second and more"},
		contents(translated(t,
			chunk("agent_thought_chunk", "one"), chunk("agent_message_chunk", "first"),
			chunk("agent_thought_chunk", "two"), chunk("agent_message_chunk", "second "), chunk("agent_message_chunk", "and more"))))
}

func TestClientFileRequestsAreIgnored(t *testing.T) {
	t.Parallel()
	require.Empty(t, translated(t,
		`{"jsonrpc":"2.0","id":0,"method":"fs/read_text_file","params":{"path":"/workspace/a","sessionId":"s"}}`,
		`{"jsonrpc":"2.0","id":1,"method":"terminal/create","params":{"command":"ls","sessionId":"s"}}`))
}

// parsedChat parses a chat file of that name.
func parsedChat(t *testing.T, name, data string) []conversation.Block {
	t.Helper()
	c, err := gemini.New().Parse([]transcript.File{{Path: name, Data: []byte(data)}})
	require.NoError(t, err)
	return c.Threads[0].Blocks
}

const chatHeader = `{"sessionId":"s","projectHash":"h","startTime":"2026-11-21T00:00:00Z","lastUpdated":"2026-11-21T00:00:00Z","kind":"main"}` + "\n"

func chatLine(id, kind, content string) string {
	return fmt.Sprintf(`{"id":%q,"timestamp":"2026-11-21T00:00:01Z","type":%q,"content":%q}`+"\n", id, kind, content)
}

func TestChatOfOlderReleaseIsOneObject(t *testing.T) {
	t.Parallel()
	chat := map[string]any{
		"sessionId": "s", "projectHash": "h", "startTime": "2026-11-21T00:00:00Z", "lastUpdated": "2026-11-21T00:00:00Z",
		"messages": []any{
			map[string]any{"id": "1", "timestamp": "2026-11-21T00:00:01Z", "type": "user", "content": "hello"},
			map[string]any{"id": "2", "timestamp": "2026-11-21T00:00:02Z", "type": "gemini", "content": "Hello.", "toolCalls": []any{
				map[string]any{"id": "ls-1", "name": "ls", "args": map[string]any{}, "status": "success", "result": "a.txt"},
			}},
			map[string]any{"id": "3", "timestamp": "2026-11-21T00:00:03Z", "type": "error", "content": "It went wrong."},
		},
	}
	want := []string{"user_message: hello", "assistant_text: Hello.", "tool_use: ", "tool_result: ", "system: It went wrong."}
	indented, err := json.MarshalIndent(chat, "", "  ")
	require.NoError(t, err)
	blocks := parsedChat(t, "chats/session-2025-09-01T00-00-s.json", string(indented))
	require.Equal(t, want, contents(blocks))
	require.JSONEq(t, `"a.txt"`, string(blocks[3].Output))

	line, err := json.Marshal(chat)
	require.NoError(t, err)
	require.Equal(t, want, contents(parsedChat(t, "chats/session-2025-09-01T00-00-s.jsonl", string(line)+"\n")))
}

func TestRewindRemovesLaterMessages(t *testing.T) {
	t.Parallel()
	chat := chatHeader + chatLine("0", "user", "<session_context>x</session_context>") +
		chatLine("1", "user", "one") + chatLine("2", "gemini", "One.") + chatLine("3", "user", "two") + chatLine("4", "gemini", "Two.")
	for to, want := range map[string][]string{
		"3":       {"user_message: one", "assistant_text: One.", "user_message: three"},
		"2":       {"user_message: one", "user_message: three"},
		"0":       {"user_message: three"},
		"unknown": {"user_message: three"}, // the program has nothing left either
	} {
		t.Run(to, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, want, contents(parsedChat(t, "chats/session-1-s.jsonl",
				chat+fmt.Sprintf(`{"$rewindTo":%q}`+"\n", to)+chatLine("5", "user", "three"))))
		})
	}
}

func TestAutomaticMessagesAreNotPrompts(t *testing.T) {
	t.Parallel()
	require.Equal(t, []string{"user_message: one", "system: System: Potential loop detected."},
		contents(parsedChat(t, "chats/session-1-s.jsonl", chatHeader+chatLine("1", "user", "one")+
			chatLine("2", "gemini", "\n\n")+chatLine("3", "user", "System: Potential loop detected."))))
}

func TestQuestionIsAskedOnce(t *testing.T) {
	t.Parallel()
	tr, err := gemini.New().NewTranslator(testRun, nil)
	require.NoError(t, err)
	const ask = `{"jsonrpc":"2.0","id":1,"method":"session/request_permission","params":{"sessionId":"s","toolCall":{"toolCallId":"ls__1","title":"ls"},"options":[]}}`
	var asked int
	for i, line := range []string{`{"overwinter":{"type":"prompt","runId":"run_1","data":{"content":"x"}}}`, ask, ask} {
		out, err := tr.Translate(agent.Frame{No: int64(i), Stream: agent.Stdout, At: capture.Begun, Data: []byte(line)})
		require.NoError(t, err)
		asked += len(out.Questions)
	}
	require.Equal(t, 1, asked)
}
