package opencode_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/agent/opencode"
	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/session"
)

var testRun = agent.RunContext{RunID: "run_0193a5f07c7e7b3e8f0a1b2c3d4e5f60", PromptID: "prm_1", Author: "ada"}

// seed gives a fuzz test what the real program wrote.
func seed(f *testing.F, pattern string) {
	f.Helper()
	names, err := filepath.Glob(pattern)
	require.NoError(f, err)
	require.NotEmpty(f, names)
	for _, name := range names {
		data, err := os.ReadFile(name)
		require.NoError(f, err)
		f.Add(short(data))
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

// FuzzTranslate checks the translator's promises on any input: it never fails, its state is small
// and enough to resume from, every event can be encoded, and a cut closes every block.
func FuzzTranslate(f *testing.F) {
	seed(f, "testdata/captures/*/events.sse")
	f.Add(`{"overwinter":{"type":"run","runId":"x","id":"s"}}` + "\n" + `{"type":"session.status","properties":{"sessionID":"s","status":{"type":"retry","attempt":1e300}}}`)
	f.Fuzz(func(t *testing.T, data string) {
		for _, run := range []agent.RunContext{{}, testRun} {
			tr, err := opencode.New().NewTranslator(run, nil)
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
					require.Less(t, len(state), 64<<10)
					tr, err = opencode.New().NewTranslator(run, state)
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
	seed(f, "testdata/captures/*/http.jsonl")
	f.Add(`{"info":{"id":"ses_1","time":{"created":1}},"messages":[{"info":{"id":"msg_1","role":"user"},"parts":[{"id":"prt_1","type":"text","text":"x"}]}]}`)
	f.Add(`{"failures":[{"messageID":"msg_1","message":"x"}]}`)
	f.Add(`[{"info":{"id":"msg_1","sessionID":"s","role":"assistant","time":{"created":1e99}},"parts":[{"id":"prt_1","type":"tool","state":{"status":"completed"}}]}]`)
	f.Fuzz(func(t *testing.T, data string) {
		c, err := opencode.New().Parse([]session.TranscriptFile{{Path: "/p/a.json", Data: []byte(data)}, {Path: "/p/b.json", Data: []byte(data)}})
		require.NoError(t, err)
		_, err = json.Marshal(c)
		require.NoError(t, err)
		requireClosed(t, c)
	})
}

func requireClosed(t *testing.T, c conversation.Conversation) {
	t.Helper()
	for _, thread := range c.Threads {
		for _, b := range thread.Blocks {
			require.False(t, b.Status.Open(), "block %s is %s", b.ID, b.Status)
		}
	}
}
