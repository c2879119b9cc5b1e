package gemini

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/agent/gemini/geminiformat"
)

// TestQuestionHasInputOfItsTool uses lines of the real program.
func TestQuestionHasInputOfItsTool(t *testing.T) {
	t.Parallel()
	for call, want := range map[string]string{
		`{"toolCallId":"run_shell_command__call_0_1","title":"touch a && echo b","content":[{"type":"content","content":{"type":"text","text":"[current working directory /workspace] (Run)"}}],"locations":[],"kind":"execute"}`: `{"command":"touch a && echo b"}`,
		`{"toolCallId":"write_file__call_0_1","title":"Writing to a.txt","content":[{"type":"diff","path":"/workspace/a.txt","oldText":"","newText":"b\n"}],"locations":[{"path":"/workspace/a.txt"}],"kind":"edit"}`:             `{"file_path":"/workspace/a.txt","content":"b\n"}`,
		`{"toolCallId":"replace__call_0_1","title":"a.txt: b => c","content":[{"type":"diff","path":"/workspace/a.txt","oldText":"b","newText":"c"}],"kind":"edit"}`:                                                              `{"file_path":"/workspace/a.txt","old_string":"b","new_string":"c"}`,
		`{"toolCallId":"web_fetch__call_0_1","title":"Fetching https://example.com","content":[],"locations":[],"kind":"fetch"}`:                                                                                                  `{"title":"Fetching https://example.com"}`,
		`{"toolCallId":"read_file__call_0_1","title":"a.txt","content":7,"locations":[{"path":"/a.txt"}]}`:                                                                                                                        `{"title":"a.txt","locations":[{"path":"/a.txt"}]}`,
	} {
		var u geminiformat.Update
		require.True(t, geminiformat.Decode(json.RawMessage(call), &u))
		require.JSONEq(t, want, string(calledWith(u, u.Title)))
	}
}
