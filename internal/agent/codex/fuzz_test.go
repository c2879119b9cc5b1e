package codex_test

import (
	"encoding/json"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/agent/agenttest/capture"
	"github.com/overwinter-dev/overwinter/internal/agent/codex"
	"github.com/overwinter-dev/overwinter/internal/transcript"
)

var testRun = agent.RunContext{RunID: "run_1", PromptID: "prm_1", Author: "ada"}

// FuzzTranslate checks the guarantees of the translator on any input: it never fails, it can resume
// from its state, every event can be encoded, and Cut closes every block.
func FuzzTranslate(f *testing.F) {
	capture.Seed(f, math.MaxInt, "testdata/captures/*/stdout.jsonl")
	f.Add(`{"overwinter":{"type":"run","runId":"run_1","id":"t"}}` + "\n" + `{"method":"turn/started","params":{"threadId":"t","turn":{"id":"u"}}}` + "\n" +
		`{"overwinter":{"type":"asked","id":"c","data":{"threadId":"t","turnId":"u","atMs":1,"input":{}}}}` + "\n" +
		`{"overwinter":{"type":"answered","id":"c","data":{"threadId":"t","turnId":"u","atMs":2,"result":{}}}}` + "\n" +
		`{"overwinter":{"type":"deadline","runId":"run_1","message":"x","data":{"threadId":"t","turnId":"u","atMs":2}}}` + "\n" +
		`{"method":"item/started","params":{"threadId":"t","turnId":"u","item":{"type":"fileChange","id":"f","changes":[{"path":"p","kind":{"type":"update"}}]}}}`)
	f.Fuzz(func(t *testing.T, data string) { capture.Translate(t, codex.New(), testRun, data) })
}

// FuzzParse checks the same guarantees of the parser, on rollouts and their notebook.
func FuzzParse(f *testing.F) {
	capture.Seed(f, math.MaxInt, "testdata/captures/*/transcript/*.jsonl")
	capture.Seed(f, math.MaxInt, "testdata/captures/*/stdout.jsonl")
	f.Fuzz(func(t *testing.T, data string) {
		const meta = `{"timestamp":"2026-11-21T02:14:33.121Z","type":"session_meta","payload":{"id":"t"}}` + "\n"
		capture.ParseAny(t, codex.New(),
			transcript.File{Path: "/s/rollout-1.jsonl", Data: []byte(data)},
			transcript.File{Path: "/s/rollout-2.jsonl", Data: []byte(meta + data)},
			transcript.File{Path: "/overwinter/ses_1.jsonl", Data: []byte(data)})
	})
}

// FuzzCommands checks that parsing a shell command never fails.
func FuzzCommands(f *testing.F) {
	for _, s := range []string{`/bin/bash -lc 'echo '"'"'a'"'"' && b'`, `ls "-la" x\ y`, `'`, `\`, ``, `a "b\"c" 'd'`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		raw, err := json.Marshal(map[string]any{
			"method": "item/commandExecution/requestApproval", "id": 1,
			"params": map[string]any{"command": s, "threadId": "t", "turnId": "u", "itemId": "i"},
		})
		require.NoError(t, err)
		tr, err := codex.New().NewTranslator(testRun, nil)
		require.NoError(t, err)
		out, err := tr.Translate(agent.Frame{Stream: agent.Stdout, At: capture.Begun, Data: raw})
		require.NoError(t, err)
		require.Len(t, out.Questions, 1)
		require.True(t, json.Valid(out.Questions[0].Input))
	})
}
