package claude_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/agent/claude"
	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// seed gives a fuzz test what the real program wrote.
func seed(f *testing.F, pattern string) {
	f.Helper()
	names, err := filepath.Glob(pattern)
	require.NoError(f, err)
	require.NotEmpty(f, names)
	for _, name := range names {
		data, err := os.ReadFile(name)
		require.NoError(f, err)
		f.Add(string(data))
	}
}

// FuzzTranslate checks the translator's promises on any input: it never fails, its state is enough
// to resume from, every event can be encoded, and a cut closes every block.
func FuzzTranslate(f *testing.F) {
	seed(f, "testdata/captures/*/stdout*.jsonl")
	f.Add(`{"type":"system","subtype":"task_started","task_type":"local_agent","task_id":"a","tool_use_id":"t","prompt":"x"}`)
	f.Fuzz(func(t *testing.T, data string) {
		tr, err := claude.New().NewTranslator(testRun, nil)
		require.NoError(t, err)
		var folder conversation.Folder
		fold := func(events []conversation.Event) {
			for _, e := range events {
				data, err := json.Marshal(e.Data)
				require.NoError(t, err)
				require.NoError(t, folder.Apply(e.Type, e.ConversationID, data))
			}
		}
		for i, line := range strings.Split(data, "\n") {
			out, err := tr.Translate(agent.Frame{No: int64(i), Stream: agent.Stdout, At: begun, Data: []byte(line)})
			require.NoError(t, err)
			fold(out.Events)
			if i%16 == 0 {
				state, err := tr.State()
				require.NoError(t, err)
				tr, err = claude.New().NewTranslator(testRun, state)
				require.NoError(t, err)
			}
		}
		fold(tr.Cut(begun))
		for _, thread := range folder.Conversation().Threads {
			for _, b := range thread.Blocks {
				require.False(t, b.Status.Open(), "block %s is %s", b.ID, b.Status)
			}
		}
	})
}

// FuzzParse holds the parser to the same.
func FuzzParse(f *testing.F) {
	seed(f, "testdata/captures/*/transcript/*.jsonl")
	f.Fuzz(func(t *testing.T, data string) {
		c, err := claude.New().Parse([]session.TranscriptFile{
			{Path: "/p/s.jsonl", Data: []byte(data)},
			{Path: "/p/s/subagents/agent-a1.jsonl", Data: []byte(data)},
			{Path: "/p/s/subagents/agent-a1.meta.json", Data: []byte(`{"toolUseId":"toolu_1","finished":true}`)},
		})
		require.NoError(t, err)
		_, err = json.Marshal(c)
		require.NoError(t, err)
		for _, thread := range c.Threads {
			for _, b := range thread.Blocks {
				require.False(t, b.Status.Open(), "block %s is %s", b.ID, b.Status)
			}
		}
	})
}
