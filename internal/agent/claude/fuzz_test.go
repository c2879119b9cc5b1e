package claude_test

import (
	"math"
	"testing"

	"github.com/overwinter-dev/overwinter/internal/agent/agenttest/capture"
	"github.com/overwinter-dev/overwinter/internal/agent/claude"
	"github.com/overwinter-dev/overwinter/internal/transcript"
)

// FuzzTranslate checks the guarantees of the translator on any input: it never fails, its state is
// enough to resume from, every event can be encoded, and Cut closes every block.
func FuzzTranslate(f *testing.F) {
	capture.Seed(f, math.MaxInt, "testdata/captures/*/stdout*.jsonl")
	f.Add(`{"type":"system","subtype":"task_started","task_type":"local_agent","task_id":"a","tool_use_id":"t","prompt":"x"}`)
	f.Fuzz(func(t *testing.T, data string) { capture.Translate(t, claude.New(), testRun, data) })
}

// FuzzParse checks the same guarantees of the parser.
func FuzzParse(f *testing.F) {
	capture.Seed(f, math.MaxInt, "testdata/captures/*/transcript/*.jsonl")
	f.Fuzz(func(t *testing.T, data string) {
		capture.ParseAny(t, claude.New(),
			transcript.File{Path: "/p/s.jsonl", Data: []byte(data)},
			transcript.File{Path: "/p/s/subagents/agent-a1.jsonl", Data: []byte(data)},
			transcript.File{Path: "/p/s/subagents/agent-a1.meta.json", Data: []byte(`{"toolUseId":"toolu_1","finished":true}`)})
	})
}
