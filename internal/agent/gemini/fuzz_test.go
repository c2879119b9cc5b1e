package gemini_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/agent/agenttest/capture"
	"github.com/overwinter-dev/overwinter/internal/agent/gemini"
	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/transcript"
)

var testRun = agent.RunContext{RunID: "run_1", PromptID: "prm_1", Author: "ada"}

// maxSeed bounds a seed: long ones take long and find little.
const maxSeed = 8 << 10

// FuzzTranslate checks the translator's promises on any input: it never fails, its state is enough
// to resume from, every event can be encoded, and a cut closes every block.
func FuzzTranslate(f *testing.F) {
	capture.Seed(f, maxSeed, "testdata/captures/*/stdout*.jsonl")
	f.Add(`{"overwinter":{"type":"prompt","runId":"run_1","data":{"content":"x"}}}` + "\n" + `{"overwinter":{"type":"tool","id":"a","data":{"name":"invoke_agent"}}}`)
	f.Fuzz(func(t *testing.T, data string) { capture.Translate(t, gemini.New(), testRun, data, func([]byte) {}) })
}

// FuzzParse holds the parser to the same.
func FuzzParse(f *testing.F) {
	capture.Seed(f, maxSeed, "testdata/captures/*/transcript/*.jsonl", "testdata/captures/*/transcript/*/chats/*.jsonl")
	f.Add(`{"sessionId":"s","kind":"subagent"}` + "\n" + `{"id":"1","type":"gemini","toolCalls":[{"id":"c","status":"success","agentId":"s"}]}`)
	f.Fuzz(func(t *testing.T, data string) {
		capture.ParseAny(t, gemini.New(),
			transcript.File{Path: "/chats/session-1.jsonl", Data: []byte(data)},
			transcript.File{Path: "/chats/s/sub.jsonl", Data: []byte(`{"sessionId":"sub","kind":"subagent"}` + "\n" + data)})
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
