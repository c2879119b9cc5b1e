package capture

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/transcript"
)

// Seed gives a fuzz test what the real program wrote: of each file the lines for which most bytes are
// room. Long seeds take long and find little.
func Seed(f *testing.F, most int, patterns ...string) {
	f.Helper()
	for _, pattern := range patterns {
		names, err := filepath.Glob(pattern)
		require.NoError(f, err)
		require.NotEmpty(f, names)
		for _, name := range names {
			data, err := os.ReadFile(name)
			require.NoError(f, err)
			var seed []byte
			for line := range bytes.Lines(data) {
				if len(seed)+len(line) <= most {
					seed = append(seed, line...)
				}
			}
			f.Add(string(seed))
		}
	}
}

// Translate checks the promises of a translator on any input, for a run of a sandbox and for a captured
// stream: it never fails, its state is enough to resume from, every event can be encoded, every
// question can be rejected, and a cut closes every block. State is called with each state.
func Translate(t *testing.T, a agent.Adapter, run agent.RunContext, data string, state func([]byte)) {
	t.Helper()
	for _, run := range []agent.RunContext{run, {}} {
		tr, err := a.NewTranslator(run, nil)
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
			out, err := tr.Translate(agent.Frame{No: int64(i), Stream: agent.Stdout, At: Begun, Data: []byte(line)})
			require.NoError(t, err)
			fold(out.Events)
			for _, q := range out.Questions {
				answerer, ok := a.(agent.Answerer)
				require.True(t, ok, "a question of an agent that takes no answers")
				_, err := answerer.Answer(q, agent.Answer{Decision: agent.DecisionReject})
				require.NoError(t, err)
			}
			if i%16 == 0 || len(data) < 4<<10 {
				s, err := tr.State()
				require.NoError(t, err)
				state(s)
				tr, err = a.NewTranslator(run, s)
				require.NoError(t, err)
			}
		}
		fold(tr.Cut(Begun))
		Closed(t, folder.Conversation())
	}
}

// ParseAny checks that a parser reads any input without failing, and leaves no block open.
func ParseAny(t *testing.T, a agent.Adapter, files ...transcript.File) {
	t.Helper()
	Closed(t, Parse(t, a, files))
}

// Closed requires that every block of a conversation is closed and can be encoded.
func Closed(t *testing.T, c conversation.Conversation) {
	t.Helper()
	_, err := json.Marshal(c)
	require.NoError(t, err)
	for _, thread := range c.Threads {
		for _, b := range thread.Blocks {
			require.False(t, b.Status.Open(), "block %s is %s", b.ID, b.Status)
		}
	}
}
