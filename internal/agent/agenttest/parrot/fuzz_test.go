package parrot

import (
	"testing"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/agent/agenttest/capture"
	"github.com/overwinter-dev/overwinter/internal/transcript"
)

// FuzzTranslate checks the guarantees of the translator and the parser on any input.
func FuzzTranslate(f *testing.F) {
	f.Add("")
	f.Add("nonsense")
	f.Add(`{"run":7}`)
	f.Add(`{"run":"run_1","done":true}` + "\n" + `{"run":"run_1","piece":"late"}`)
	f.Add(`{"run":"run_1","prompt":{"content":"x"}}` + "\n" + `{"run":"run_1","piece":"\ud800"}` + "\n" + `{"run":"run_1","answer":"x","done":true}`)
	f.Fuzz(func(t *testing.T, data string) {
		capture.Translate(t, New(), agent.RunContext{RunID: "run_1"}, data)
		capture.ParseAny(t, New(), transcript.File{Path: "/home/.parrot/a.jsonl", Data: []byte(data)})
	})
}
