package turn

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/agent/catalog"
	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/eventlog"
)

func deltaDraft(t require.TestingT, where, block, text string, frame int64, n int) eventlog.Draft {
	data, err := conversation.Encode(conversation.TextDelta{BlockID: block, Delta: text})
	require.NoError(t, err)
	return eventlog.Draft{
		Type: string(conversation.EventTextDelta), ConversationID: where, Data: data, Frame: frame, N: n, At: time.Unix(frame, 0).UTC(),
	}
}

// TestJoinedDeltasKeepText checks after every event that the joined events fold to the same blocks
// as the single ones, and that a joined event has the key and the time of its last delta.
func TestJoinedDeltasKeepText(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var single []eventlog.Draft
		add := func(e eventlog.Draft) { single = append(single, e) }
		blocks := []string{"a", "b"}
		for i, id := range blocks {
			data, err := conversation.Encode(conversation.BlockStart{Block: conversation.Block{
				ID: id, Type: conversation.AssistantText, Status: conversation.Streaming, CreatedAt: time.Unix(0, 0).UTC(),
			}})
			require.NoError(t, err)
			add(eventlog.Draft{Type: string(conversation.EventBlockStart), ConversationID: conversation.Main, Data: data, N: i})
		}
		texts := rapid.SampledFrom([]string{"x", "word ", "\u2028<&>", "\"\n\x00", "\U0001F600", strings.Repeat("y", maxDelta/3)})
		frames := rapid.IntRange(1, 40).Draw(t, "frames")
		for frame := int64(1); frame <= int64(frames); frame++ {
			for n := range rapid.IntRange(1, 3).Draw(t, "events") {
				block := rapid.SampledFrom([]string{"a", "a", "a", "b"}).Draw(t, "block")
				if rapid.IntRange(0, 9).Draw(t, "kind") == 0 {
					data, err := conversation.Encode(conversation.BlockUpdate{BlockID: block, Updates: conversation.Updates{Name: "n"}})
					require.NoError(t, err)
					add(eventlog.Draft{Type: string(conversation.EventBlockUpdate), ConversationID: conversation.Main, Data: data, Frame: frame, N: n})
					continue
				}
				add(deltaDraft(t, conversation.Main, block, texts.Draw(t, "text"), frame, n))
			}
		}
		b := &batch{}
		for _, e := range single {
			require.NoError(t, b.addEvents([]eventlog.Draft{e}))
		}
		joined, err := b.events()
		require.NoError(t, err)

		var want, got conversation.Folder
		rest := single
		for _, e := range joined {
			require.LessOrEqual(t, len(e.Data), 6*maxDelta+200)
			require.NoError(t, got.Apply(conversation.EventType(e.Type), e.ConversationID, e.Data))
			for {
				s := rest[0]
				rest = rest[1:]
				require.NoError(t, want.Apply(conversation.EventType(s.Type), s.ConversationID, s.Data))
				if s.Frame == e.Frame && s.N == e.N {
					require.Equal(t, s.At, e.At)
					break
				}
				require.Equal(t, string(conversation.EventTextDelta), s.Type, "only deltas are joined")
			}
			require.Empty(t, cmp.Diff(want.Conversation(), got.Conversation()))
		}
		require.Empty(t, rest)
	})
}

// TestDeltasCommittedTogetherAreOneEvent checks the number of events and the work per word by
// counting.
func TestDeltasCommittedTogetherAreOneEvent(t *testing.T) { //nolint:paralleltest // allocations are counted
	adapter, err := catalog.Agents().Get("demo")
	require.NoError(t, err)
	translator, err := adapter.NewTranslator(agent.RunContext{RunID: "run_1"}, nil)
	require.NoError(t, err)
	c := &convert{translator: translator, limits: &conversation.Limiter{}}
	frame := int64(0)
	translate := func(b *batch, line string) {
		translated, err := c.translate(agent.Frame{No: frame, Stream: agent.Stdout, At: time.Unix(frame, 0), Data: []byte(line)})
		frame++
		require.NoError(t, err)
		require.NoError(t, b.addEvents(translated.events))
	}
	translate(&batch{}, `{"type":"start","kind":"text","uuid":"block"}`)
	const words = 1000
	var b *batch
	var events []eventlog.Draft
	allocations := testing.AllocsPerRun(5, func() {
		b = &batch{}
		for range words {
			translate(b, `{"type":"delta","uuid":"block","content":"word "}`)
		}
		if events, err = b.events(); err != nil {
			t.Fatal(err)
		}
	})
	require.Len(t, events, 1)
	var d conversation.TextDelta
	require.NoError(t, json.Unmarshal(events[0].Data, &d))
	require.Equal(t, strings.Repeat("word ", words), d.Delta)
	require.Equal(t, frame-1, events[0].Frame)
	require.LessOrEqual(t, allocations/words, 45.0, "allocations of a word that is committed with others")

	// The text of a whole batch is encoded once, not with every word.
	before := testing.AllocsPerRun(3, func() {
		b := &batch{}
		for i := range 4000 {
			require.NoError(t, b.addEvents([]eventlog.Draft{deltaDraft(t, "main", "block", fmt.Sprint(i%10), int64(i), 0)}))
		}
		require.Len(t, b.add.Events, 1)
	})
	require.LessOrEqual(t, before/4000, 20.0)
}
