package gemini_test

import (
	"testing"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/agent/agenttest/capture"
	"github.com/overwinter-dev/overwinter/internal/agent/gemini"
	"github.com/overwinter-dev/overwinter/internal/transcript"
)

var testRun = agent.RunContext{RunID: "run_1", PromptID: "prm_1", Author: "ada"}

// maxSeed bounds a seed, because long seeds are slow and find little.
const maxSeed = 8 << 10

// FuzzTranslate checks the guarantees of the translator on any input: it never fails, its state is
// enough to resume from, every event can be encoded, and Cut closes every block.
func FuzzTranslate(f *testing.F) {
	capture.Seed(f, maxSeed, "testdata/captures/*/stdout*.jsonl")
	f.Add(`{"overwinter":{"type":"prompt","runId":"run_1","data":{"content":"x"}}}` + "\n" + `{"overwinter":{"type":"tool","id":"a","data":{"name":"invoke_agent"}}}`)
	f.Fuzz(func(t *testing.T, data string) { capture.Translate(t, gemini.New(), testRun, data) })
}

// FuzzParse checks the same guarantees of the parser.
func FuzzParse(f *testing.F) {
	capture.Seed(f, maxSeed, "testdata/captures/*/transcript/*.jsonl", "testdata/captures/*/transcript/*/chats/*.jsonl")
	f.Add(`{"sessionId":"s","kind":"subagent"}` + "\n" + `{"id":"1","type":"gemini","toolCalls":[{"id":"c","status":"success","agentId":"s"}]}`)
	f.Fuzz(func(t *testing.T, data string) {
		capture.ParseAny(t, gemini.New(),
			transcript.File{Path: "/chats/session-1.jsonl", Data: []byte(data)},
			transcript.File{Path: "/chats/s/sub.jsonl", Data: []byte(`{"sessionId":"sub","kind":"subagent"}` + "\n" + data)})
	})
}

func TestStateIsSmall(t *testing.T) {
	t.Parallel()
	capture.LongText(t, gemini.New(), testRun, `{"overwinter":{"type":"prompt","runId":"run_1","data":{"at":"2026-11-21T00:00:00Z","content":"x"}}}`,
		func(text string) string { return chunk("agent_message_chunk", text) },
		func(_, text string) string {
			return `{"overwinter":{"type":"chat","data":{"id":"r","type":"gemini","content":"` + text + `"}}}`
		})
}
