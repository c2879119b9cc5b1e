package opencode_test

import (
	"strings"
	"testing"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/agent/agenttest/capture"
	"github.com/overwinter-dev/overwinter/internal/agent/opencode"
	"github.com/overwinter-dev/overwinter/internal/transcript"
)

var testRun = agent.RunContext{RunID: "run_0193a5f07c7e7b3e8f0a1b2c3d4e5f60", PromptID: "prm_1", Author: "ada"}

// maxSeed bounds a seed, because long seeds are slow and find little.
const maxSeed = 8 << 10

// FuzzTranslate checks the guarantees of the translator on any input: it never fails, its state is
// small and enough to resume from, every event can be encoded, and Cut closes every block.
func FuzzTranslate(f *testing.F) {
	capture.Seed(f, maxSeed, "testdata/captures/*/events.sse")
	f.Add(`{"overwinter":{"type":"run","runId":"x","id":"s"}}` + "\n" + `{"type":"session.status","properties":{"sessionID":"s","status":{"type":"retry","attempt":1e300}}}`)
	f.Fuzz(func(t *testing.T, data string) {
		for _, data := range []string{data, strings.ReplaceAll(data, "data: ", "")} { // as the bridge prints it
			capture.Translate(t, opencode.New(), testRun, data)
		}
	})
}

// FuzzParse checks the same guarantees of the parser.
func FuzzParse(f *testing.F) {
	capture.Seed(f, maxSeed, "testdata/captures/*/http.jsonl")
	f.Add(`{"info":{"id":"ses_1","time":{"created":1}},"messages":[{"info":{"id":"msg_1","role":"user"},"parts":[{"id":"prt_1","type":"text","text":"x"}]}]}`)
	f.Add(`{"failures":[{"messageID":"msg_1","message":"x"}]}`)
	f.Add(`[{"info":{"id":"msg_1","sessionID":"s","role":"assistant","time":{"created":1e99}},"parts":[{"id":"prt_1","type":"tool","state":{"status":"completed"}}]}]`)
	f.Fuzz(func(t *testing.T, data string) {
		capture.ParseAny(t, opencode.New(),
			transcript.File{Path: "/p/a.json", Data: []byte(data)}, transcript.File{Path: "/p/b.json", Data: []byte(data)})
	})
}
