package conversation_test

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/conversation"
)

// limited encodes events and folds the results, with a JSON round trip of the limiter's state
// between any two.
func limited(t *testing.T, l *conversation.Limiter, f *conversation.Folder, events ...conversation.Event) {
	t.Helper()
	for _, e := range events {
		state, err := json.Marshal(l)
		require.NoError(t, err)
		*l = conversation.Limiter{}
		require.NoError(t, json.Unmarshal(state, l))
		out, err := l.Encode(e)
		require.NoError(t, err)
		for _, o := range out {
			require.Less(t, len(o.JSON), 3<<20)
			require.NoError(t, f.Apply(o.Type, o.ConversationID, o.JSON))
		}
	}
}

func TestTextBeyondBoundIsCountedAndLeftOut(t *testing.T) {
	t.Parallel()
	for _, end := range []string{"complete", "update"} {
		var l conversation.Limiter
		var f conversation.Folder
		limited(t, &l, &f, begin("main", text("a", "", conversation.Streaming)))
		said := strings.Repeat("é", 100<<10)
		for range 20 {
			limited(t, &l, &f, delta("main", "a", said))
		}
		streamed := f.Conversation().Threads[0].Blocks[0]
		require.Len(t, streamed.Content, conversation.MaxBlockBytes)
		require.True(t, strings.HasPrefix(strings.Repeat(said, 20), streamed.Content))
		if end == "complete" {
			limited(t, &l, &f, complete("main", text("a", strings.Repeat(said, 20), conversation.Complete)))
		} else {
			limited(t, &l, &f, change("main", "a", conversation.Updates{Status: conversation.Complete}))
		}
		whole := f.Conversation().Threads[0].Blocks[0]
		require.Equal(t, streamed.Content, whole.Content, "the stream and the whole block agree")
		require.EqualValues(t, 20*len(said)-conversation.MaxBlockBytes, whole.TruncatedBytes)
		require.Empty(t, l.Open)
	}
}

func TestBlockWithinBoundsIsUnchanged(t *testing.T) {
	t.Parallel()
	var l conversation.Limiter
	var f, plain conversation.Folder
	tool := conversation.Block{ID: "t", Type: conversation.ToolUse, Status: conversation.Pending, CreatedAt: at, Name: "x", ToolUseID: "t", Input: json.RawMessage(`{"a":1}`)}
	events := []conversation.Event{
		begin("main", text("a", "to ", conversation.Streaming)), delta("main", "a", "be"), begin("sub", tool),
		change("sub", "t", conversation.Updates{Status: conversation.Running}), complete("main", text("a", "to be", conversation.Complete)),
		removed("sub", "t"), delta("main", "late", "x"),
	}
	for _, e := range events {
		plain.Add(e)
	}
	limited(t, &l, &f, events...)
	require.Equal(t, plain.Conversation(), f.Conversation())
}

func TestLongInputsAndOutputsAreCutToStrings(t *testing.T) {
	t.Parallel()
	var l conversation.Limiter
	var f conversation.Folder
	long := strings.Repeat("x", 3<<20)
	limited(t, &l, &f,
		complete("main", conversation.Block{ID: "1", Type: conversation.ToolResult, Status: conversation.Success, CreatedAt: at, Output: json.RawMessage(`"` + long + `"`)}),
		complete("main", conversation.Block{ID: "2", Type: conversation.ToolUse, Status: conversation.Success, CreatedAt: at, Input: json.RawMessage(`{"a":"` + long + `"}`)}))
	blocks := f.Conversation().Threads[0].Blocks
	require.Len(t, blocks[0].Output, conversation.MaxBlockBytes+2)
	require.EqualValues(t, 2<<20, blocks[0].TruncatedBytes)
	var input string
	require.NoError(t, json.Unmarshal(blocks[1].Input, &input))
	require.True(t, strings.HasPrefix(input, `{"a":"xxx`))
	require.Positive(t, blocks[1].TruncatedBytes)
}

func TestLongIDsAreBoundedAndStayDifferent(t *testing.T) {
	t.Parallel()
	var l conversation.Limiter
	var f conversation.Folder
	one, other := strings.Repeat("i", 5000)+"1", strings.Repeat("i", 5000)+"2"
	limited(t, &l, &f, begin(one, text(one, "", conversation.Streaming)), begin(one, text(other, "", conversation.Streaming)),
		delta(one, one, "one"), delta(one, other, "other"))
	c := f.Conversation()
	require.Len(t, c.Threads, 2)
	require.LessOrEqual(t, len(c.Threads[1].ID), conversation.MaxIDBytes)
	require.Equal(t, "one", c.Threads[1].Blocks[0].Content)
	require.Equal(t, "other", c.Threads[1].Blocks[1].Content)
	require.LessOrEqual(t, len(c.Threads[1].Blocks[0].ID), conversation.MaxIDBytes)
}

func TestFullTurnOnlyClosesOpenBlocks(t *testing.T) {
	t.Parallel()
	l := conversation.Limiter{Bytes: conversation.MaxTurnBytes - 1}
	var f conversation.Folder
	limited(t, &l, &f, begin("main", text("a", "", conversation.Streaming)))
	out, err := l.Encode(delta("main", "a", "x"))
	require.NoError(t, err)
	require.Len(t, out, 1)
	require.Equal(t, conversation.EventError, out[0].Type)
	require.Contains(t, string(out[0].JSON), conversation.CodeTurnTruncated)
	for _, e := range []conversation.Event{
		delta("main", "a", "x"), begin("main", text("b", "", conversation.Streaming)), complete("main", text("b", "x", conversation.Complete)),
		change("main", "a", conversation.Updates{Status: conversation.Streaming}),
	} {
		out, err := l.Encode(e)
		require.NoError(t, err)
		require.Empty(t, out)
	}
	limited(t, &l, &f, complete("main", text("a", "", conversation.Complete)))
	require.Equal(t, conversation.Complete, f.Conversation().Threads[0].Blocks[0].Status)
}

func TestEventsOfTurnAreBoundedInNumber(t *testing.T) {
	t.Parallel()
	for name, l := range map[string]conversation.Limiter{
		"of the agent": {Events: conversation.MaxTurnEvents - 1},
		"with others":  {Events: conversation.MaxTurnEvents / 2, Other: conversation.Amount{Events: conversation.MaxTurnEvents/2 - 1}},
	} {
		out, err := l.Encode(begin("main", text("a", "", conversation.Streaming)))
		require.NoError(t, err)
		require.Len(t, out, 1, name)
		out, err = l.Encode(delta("main", "a", "x"))
		require.NoError(t, err)
		require.Len(t, out, 1, name)
		require.Contains(t, string(out[0].JSON), conversation.CodeTurnTruncated, name)
		out, err = l.Encode(delta("main", "a", "x"))
		require.NoError(t, err)
		require.Empty(t, out, name)
		out, err = l.Encode(complete("main", text("a", "x", conversation.Complete)))
		require.NoError(t, err)
		require.Len(t, out, 1, name)
	}
}

func TestStateOfLimiterIsBounded(t *testing.T) {
	t.Parallel()
	var l conversation.Limiter
	for i := range 3000 {
		_, err := l.Encode(begin("main", text(strings.Repeat("long", 100)+string(rune('a'+i)), "", conversation.Streaming)))
		require.NoError(t, err)
	}
	state, err := json.Marshal(l)
	require.NoError(t, err)
	require.Less(t, len(state), 400<<10)
}

// TestEveryBlockIsEnded opens more blocks than a Limiter tracks, in a turn that is full before
// they end.
func TestEveryBlockIsEnded(t *testing.T) {
	t.Parallel()
	var l conversation.Limiter
	var f conversation.Folder
	const many = 1500
	fold := func(e conversation.Event) (bytes int) {
		out, err := l.Encode(e)
		require.NoError(t, err)
		for _, o := range out {
			bytes += len(o.JSON)
			require.NoError(t, f.Apply(o.Type, o.ConversationID, o.JSON))
		}
		return bytes
	}
	for i := range many {
		fold(begin("main", text(strconv.Itoa(i), "", conversation.Streaming)))
		require.Equal(t, i >= conversation.MaxOpenBlocks, l.Crowded())
	}
	l.Bytes = conversation.MaxTurnBytes
	closing := 0
	for i := range many {
		closing += fold(complete("main", text(strconv.Itoa(i), strings.Repeat("x", 10<<10), conversation.Complete)))
	}
	require.Less(t, closing, 256<<10, "a full turn accepts only the status")
	blocks := f.Conversation().Threads[0].Blocks
	require.Len(t, blocks, many)
	for i, b := range blocks {
		want := conversation.Complete
		if i < 500 {
			want = conversation.Aborted
		}
		require.Equal(t, want, b.Status, "block %d", i)
	}
	require.Empty(t, l.Open)
}
