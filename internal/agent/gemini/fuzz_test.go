package gemini_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/agent/gemini"
	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/session"
)

var testRun = agent.RunContext{RunID: "run_1", PromptID: "prm_1", Author: "ada"}

// seed gives a fuzz test what the real program wrote.
func seed(f *testing.F, patterns ...string) {
	f.Helper()
	for _, pattern := range patterns {
		names, err := filepath.Glob(pattern)
		require.NoError(f, err)
		require.NotEmpty(f, names)
		for _, name := range names {
			data, err := os.ReadFile(name)
			require.NoError(f, err)
			f.Add(short(data))
		}
	}
}

func requireClosed(t *testing.T, c conversation.Conversation) {
	t.Helper()
	_, err := json.Marshal(c)
	require.NoError(t, err)
	for _, thread := range c.Threads {
		for _, b := range thread.Blocks {
			require.False(t, b.Status.Open(), "block %s is %s", b.ID, b.Status)
		}
	}
}

// maxSeed bounds a seed: long ones take long and find little.
const maxSeed = 8 << 10

// short are lines of what the program wrote, as far as there is room.
func short(data []byte) string {
	var out []byte
	for line := range bytes.Lines(data) {
		if len(out)+len(line) <= maxSeed {
			out = append(out, line...)
		}
	}
	return string(out)
}

// FuzzTranslate checks the translator's promises on any input: it never fails, its state is enough
// to resume from, every event can be encoded, and a cut closes every block.
func FuzzTranslate(f *testing.F) {
	seed(f, "testdata/captures/*/stdout*.jsonl")
	f.Add(`{"overwinter":{"type":"prompt","runId":"run_1","data":{"content":"x"}}}` + "\n" + `{"overwinter":{"type":"tool","id":"a","data":{"name":"invoke_agent"}}}`)
	f.Fuzz(func(t *testing.T, data string) {
		for _, run := range []agent.RunContext{testRun, {}} {
			tr, err := gemini.New().NewTranslator(run, nil)
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
					tr, err = gemini.New().NewTranslator(run, state)
					require.NoError(t, err)
				}
			}
			fold(tr.Cut(begun))
			requireClosed(t, folder.Conversation())
		}
	})
}

// FuzzParse holds the parser to the same.
func FuzzParse(f *testing.F) {
	seed(f, "testdata/captures/*/transcript/*.jsonl", "testdata/captures/*/transcript/*/chats/*.jsonl")
	f.Add(`{"sessionId":"s","kind":"subagent"}` + "\n" + `{"id":"1","type":"gemini","toolCalls":[{"id":"c","status":"success","agentId":"s"}]}`)
	f.Fuzz(func(t *testing.T, data string) {
		c, err := gemini.New().Parse([]session.TranscriptFile{
			{Path: "/chats/session-1.jsonl", Data: []byte(data)},
			{Path: "/chats/s/sub.jsonl", Data: []byte(`{"sessionId":"sub","kind":"subagent"}` + "\n" + data)},
		})
		require.NoError(t, err)
		requireClosed(t, c)
	})
}

// TestAStateIsSmall checks that the state stays within its bound while a long text streams, and
// that a later translator uses what the bridge reports of the text in the end.
func TestAStateIsSmall(t *testing.T) {
	t.Parallel()
	run := agent.RunContext{RunID: "run_1"}
	tr, err := gemini.New().NewTranslator(run, nil)
	require.NoError(t, err)
	var folder conversation.Folder
	no := int64(0)
	translate := func(line string) {
		out, err := tr.Translate(agent.Frame{No: no, Stream: agent.Stdout, At: time.Unix(1, 0), Data: []byte(line)})
		require.NoError(t, err)
		for _, e := range out.Events {
			folder.Add(e)
		}
		no++
	}
	translate(`{"overwinter":{"type":"prompt","runId":"run_1","data":{"at":"2026-11-21T00:00:00Z","content":"x"}}}`)
	piece, long := strings.Repeat("word ", 500), ""
	for range 100 {
		long += piece
		translate(`{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"` + piece + `"}}}}`)
		state, err := tr.State()
		require.NoError(t, err)
		require.Less(t, len(state), 64<<10)
		tr, err = gemini.New().NewTranslator(run, state)
		require.NoError(t, err)
	}
	last := func() conversation.Block {
		blocks := folder.Conversation().Threads[0].Blocks
		return blocks[len(blocks)-1]
	}
	require.Equal(t, strings.TrimSpace(long), strings.TrimSpace(last().Content), "what streams is whole")
	translate(`{"overwinter":{"type":"chat","data":{"id":"r","type":"gemini","content":"` + strings.TrimSpace(long) + `"}}}`)
	require.Equal(t, conversation.Complete, last().Status)
	require.Equal(t, strings.TrimSpace(long), last().Content)
}
