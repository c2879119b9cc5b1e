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

// Seed seeds a fuzz test with the output of a real program: the lines of each file that fit into
// most bytes. Long seeds are slow and find little.
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

// maxState bounds a translator's state, which is stored with every commit.
const maxState = 64 << 10

// Translate checks the guarantees of a translator on any input, for a run in a sandbox and for a
// captured stream: it never fails, its state is small and enough to resume from without a
// difference, every event can be encoded, every question can be rejected, and Cut closes every
// block.
func Translate(t *testing.T, a agent.Adapter, run agent.RunContext, data string) {
	t.Helper()
	for _, run := range []agent.RunContext{run, {}} {
		tr, err := a.NewTranslator(run, nil)
		require.NoError(t, err)
		steady, err := a.NewTranslator(run, nil) // never restarted
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
			frame := agent.Frame{No: int64(i), Stream: agent.Stdout, At: Begun, Data: []byte(line)}
			out, err := tr.Translate(frame)
			require.NoError(t, err)
			fold(out.Events)
			if run.RunID != "" && len(data) < maxRestarted {
				want, err := steady.Translate(frame)
				require.NoError(t, err)
				require.Equal(t, encoded(t, want), encoded(t, out), "line %d: want as without restarts", i)
			}
			for _, q := range out.Questions {
				answerer, ok := a.(agent.Answerer)
				require.True(t, ok, "a question of an agent that takes no answers")
				_, err := answerer.Answer(q, agent.Answer{Decision: agent.DecisionReject})
				require.NoError(t, err)
			}
			if i%16 == 0 || len(data) < 4<<10 {
				s, err := tr.State()
				require.NoError(t, err)
				require.Less(t, len(s), maxState)
				tr, err = a.NewTranslator(run, s)
				require.NoError(t, err)
			}
		}
		fold(tr.Cut(Begun))
		Closed(t, folder.Conversation())
	}
}

// maxRestarted bounds the input whose translation must not depend on restarts: with a longer one, a
// state may have dropped text. Recordings are not restarted.
const maxRestarted = 16 << 10

func encoded(t *testing.T, out agent.Translation) string {
	t.Helper()
	data, err := json.Marshal(out)
	require.NoError(t, err)
	return string(data)
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

// LongText checks that the state of a translator stays small while it streams a text longer than a
// state may be, and that no restart loses a piece of the text. After the line begin, piece is a
// line with a piece of the text, and end is the line that completes the block with that ID.
func LongText(t *testing.T, a agent.Adapter, run agent.RunContext, begin string, piece func(text string) string, end func(id, text string) string) {
	t.Helper()
	tr, err := a.NewTranslator(run, nil)
	require.NoError(t, err)
	var folder conversation.Folder
	no := int64(0)
	translate := func(line string) {
		out, err := tr.Translate(agent.Frame{No: no, Stream: agent.Stdout, At: Begun, Data: []byte(line)})
		require.NoError(t, err)
		adder(&folder)(out.Events)
		no++
	}
	last := func() conversation.Block {
		blocks := folder.Conversation().Threads[0].Blocks
		return blocks[len(blocks)-1]
	}
	translate(begin)
	words := strings.Repeat("word ", 500)
	for range 100 {
		translate(piece(words))
		state, err := tr.State()
		require.NoError(t, err)
		require.Less(t, len(state), maxState)
		tr, err = a.NewTranslator(run, state)
		require.NoError(t, err)
	}
	whole := strings.TrimSpace(strings.Repeat(words, 100))
	require.Equal(t, whole, strings.TrimSpace(last().Content), "what streams is whole")
	translate(end(last().ID, whole))
	require.Equal(t, conversation.Complete, last().Status)
	require.Equal(t, whole, last().Content)
}
