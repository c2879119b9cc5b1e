package codex_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/agent/codex"
	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/session"
)

var testRun = agent.RunContext{RunID: "run_1", PromptID: "prm_1", Author: "ada"}

// seed adds files as seeds.
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

func requireClosed(t *testing.T, c conversation.Conversation) {
	t.Helper()
	for _, thread := range c.Threads {
		for _, b := range thread.Blocks {
			require.False(t, b.Status.Open(), "block %s is %s", b.ID, b.Status)
		}
	}
}

// FuzzTranslate checks the translator's promises on any input: it never fails, it can resume from
// its state, every event can be encoded, and a cut closes every block.
func FuzzTranslate(f *testing.F) {
	seed(f, "testdata/captures/*/stdout.jsonl")
	f.Add(`{"overwinter":{"type":"run","runId":"run_1","id":"t"}}` + "\n" + `{"method":"turn/started","params":{"threadId":"t","turn":{"id":"u"}}}` + "\n" +
		`{"overwinter":{"type":"asked","id":"c","data":{"threadId":"t","turnId":"u","atMs":1,"input":{}}}}` + "\n" +
		`{"overwinter":{"type":"answered","id":"c","data":{"threadId":"t","turnId":"u","atMs":2,"result":{}}}}` + "\n" +
		`{"overwinter":{"type":"deadline","runId":"run_1","message":"x","data":{"threadId":"t","turnId":"u","atMs":2}}}` + "\n" +
		`{"method":"item/started","params":{"threadId":"t","turnId":"u","item":{"type":"fileChange","id":"f","changes":[{"path":"p","kind":{"type":"update"}}]}}}`)
	f.Fuzz(func(t *testing.T, data string) {
		tr, err := codex.New().NewTranslator(testRun, nil)
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
			for _, q := range out.Questions {
				_, err := codex.New().Answer(q, agent.Answer{Decision: agent.DecisionReject})
				require.NoError(t, err)
			}
			if i%16 == 0 {
				state, err := tr.State()
				require.NoError(t, err)
				tr, err = codex.New().NewTranslator(testRun, state)
				require.NoError(t, err)
			}
		}
		fold(tr.Cut(begun))
		requireClosed(t, folder.Conversation())
	})
}

// FuzzParse checks the same for the parser, on rollouts and the journal next to them.
func FuzzParse(f *testing.F) {
	seed(f, "testdata/captures/*/transcript/*.jsonl")
	seed(f, "testdata/captures/*/stdout.jsonl")
	f.Fuzz(func(t *testing.T, data string) {
		const meta = `{"timestamp":"2026-11-21T02:14:33.121Z","type":"session_meta","payload":{"id":"t"}}` + "\n"
		c, err := codex.New().Parse([]session.TranscriptFile{
			{Path: "/s/rollout-1.jsonl", Data: []byte(data)},
			{Path: "/s/rollout-2.jsonl", Data: []byte(meta + data)},
			{Path: "/overwinter/ses_1.jsonl", Data: []byte(data)},
		})
		require.NoError(t, err)
		_, err = json.Marshal(c)
		require.NoError(t, err)
		requireClosed(t, c)
	})
}

// FuzzCommands holds what a shell command is read from to never failing.
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
		out, err := tr.Translate(agent.Frame{Stream: agent.Stdout, At: begun, Data: raw})
		require.NoError(t, err)
		require.Len(t, out.Questions, 1)
		require.True(t, json.Valid(out.Questions[0].Input))
	})
}
