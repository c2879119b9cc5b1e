package conversation_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/overwinter-dev/overwinter/internal/conversation"
)

var at = time.Date(2026, 1, 2, 3, 4, 5, 678_000_000, time.UTC)

func text(id, content string, status conversation.BlockStatus) conversation.Block {
	return conversation.Block{ID: id, Type: conversation.AssistantText, Status: status, CreatedAt: at, Content: content}
}

func begin(where string, b conversation.Block) conversation.Event {
	return conversation.Event{Type: conversation.EventBlockStart, ConversationID: where, At: at, Data: conversation.BlockStart{Block: b}}
}

func complete(where string, b conversation.Block) conversation.Event {
	return conversation.Event{Type: conversation.EventBlockComplete, ConversationID: where, At: at, Data: conversation.BlockComplete{Block: b}}
}

func delta(where, id, d string) conversation.Event {
	return conversation.Event{Type: conversation.EventTextDelta, ConversationID: where, At: at, Data: conversation.TextDelta{BlockID: id, Delta: d}}
}

func change(where, id string, u conversation.Updates) conversation.Event {
	return conversation.Event{Type: conversation.EventBlockUpdate, ConversationID: where, At: at, Data: conversation.BlockUpdate{BlockID: id, Updates: u}}
}

func removed(where, id string) conversation.Event {
	return conversation.Event{Type: conversation.EventBlockRemoved, ConversationID: where, At: at, Data: conversation.BlockRemoved{BlockID: id}}
}

// fold folds events in the form of a translator, and checks that the form of the log yields the
// same.
func fold(t require.TestingT, events ...conversation.Event) conversation.Conversation {
	var typed, logged conversation.Folder
	for _, e := range events {
		typed.Add(e)
		data, err := json.Marshal(e.Data)
		require.NoError(t, err)
		require.NoError(t, logged.Apply(e.Type, e.ConversationID, data))
	}
	require.Empty(t, cmp.Diff(typed.Conversation(), logged.Conversation()), "- typed, + from the log")
	return typed.Conversation()
}

func main(blocks ...conversation.Block) conversation.Conversation {
	return conversation.Conversation{Threads: []conversation.Thread{{ID: conversation.Main, Blocks: append([]conversation.Block{}, blocks...)}}}
}

func TestEmptyConversationHasItsMainThread(t *testing.T) {
	t.Parallel()
	require.Equal(t, main(), fold(t))
	data, err := json.Marshal(fold(t))
	require.NoError(t, err)
	require.JSONEq(t, `{"conversations":[{"id":"main","blocks":[]}]}`, string(data))
}

func TestDeltasAddUpUntilBlockIsComplete(t *testing.T) {
	t.Parallel()
	events := []conversation.Event{
		begin("main", text("a", "", conversation.Streaming)),
		delta("main", "a", "to "),
		delta("main", "a", "be"),
	}
	require.Equal(t, main(text("a", "to be", conversation.Streaming)), fold(t, events...))
	events = append(events, complete("main", text("a", "to be, or not", conversation.Complete)))
	require.Equal(t, main(text("a", "to be, or not", conversation.Complete)), fold(t, events...), "the whole block counts, not the deltas")
}

func TestStartMayHaveContentAlready(t *testing.T) {
	t.Parallel()
	require.Equal(t, main(text("a", "to be", conversation.Streaming)),
		fold(t, begin("main", text("a", "to ", conversation.Streaming)), delta("main", "a", "be")))
}

func TestUpdatesChangeOnlyNamedFields(t *testing.T) {
	t.Parallel()
	tool := conversation.Block{ID: "t", Type: conversation.ToolUse, Status: conversation.Pending, CreatedAt: at, Name: "shell", ToolUseID: "t"}
	after := tool
	after.Status = conversation.Running
	require.Equal(t, main(after), fold(t, begin("main", tool), change("main", "t", conversation.Updates{Status: conversation.Running})))
	after.Input = json.RawMessage(`{"command":"ls"}`)
	after.Name = "bash"
	require.Equal(t, main(after), fold(t, begin("main", tool),
		change("main", "t", conversation.Updates{Status: conversation.Running}),
		change("main", "t", conversation.Updates{Name: "bash", Input: json.RawMessage(`{"command":"ls"}`)})))
	result := conversation.Block{ID: "r", Type: conversation.ToolResult, Status: conversation.Running, CreatedAt: at, ToolUseID: "t"}
	filled := result
	filled.Output = json.RawMessage(`"so far"`)
	got := fold(t, begin("main", result), change("main", "r", conversation.Updates{Output: filled.Output}))
	require.Equal(t, main(filled), got)
}

func TestRemovedBlockMayReturn(t *testing.T) {
	t.Parallel()
	a, b := text("a", "a", conversation.Complete), text("b", "b", conversation.Complete)
	require.Equal(t, main(b), fold(t, complete("main", a), complete("main", b), removed("main", "a")))
	require.Equal(t, main(b, a), fold(t, complete("main", a), complete("main", b), removed("main", "a"), complete("main", a)))
	require.Equal(t, main(a), fold(t, complete("main", a), removed("main", "b")))
}

func TestBlockKeepsItsPlaceWhenItIsComplete(t *testing.T) {
	t.Parallel()
	a, b := text("a", "", conversation.Streaming), text("b", "", conversation.Streaming)
	done := text("a", "done", conversation.Complete)
	require.Equal(t, main(done, b), fold(t, begin("main", a), begin("main", b), complete("main", done)))
}

func TestLateReaderSeesLaterCompletions(t *testing.T) {
	t.Parallel()
	done := text("a", "to be", conversation.Complete)
	require.Equal(t, main(done), fold(t,
		delta("main", "a", "be"), change("main", "a", conversation.Updates{Status: conversation.Running}), removed("main", "z"),
		delta("sub", "x", "lost"), change("sub", "x", conversation.Updates{Name: "lost"}), removed("sub", "x"),
		complete("main", done)), "and no thread for missed events")
}

func TestThreadsComeMainFirstThenAsTheyAppear(t *testing.T) {
	t.Parallel()
	b := text("a", "x", conversation.Complete)
	c := fold(t, complete("zoe", b), complete("abe", b), complete("main", b), complete("zoe", text("b", "y", conversation.Complete)))
	var ids []string
	for _, th := range c.Threads {
		ids = append(ids, th.ID)
	}
	require.Equal(t, []string{"main", "zoe", "abe"}, ids)
	require.Len(t, c.Threads[1].Blocks, 2, "one id in two threads is two blocks")
	require.Equal(t, main(b), fold(t, complete("", b)), "no id means main")
}

func TestEventsOfOtherTypesChangeNothing(t *testing.T) {
	t.Parallel()
	var f conversation.Folder
	for _, kind := range []conversation.EventType{
		conversation.EventMetadataUpdate, conversation.EventTitle, conversation.EventError, "turn_start", "of the future",
	} {
		require.NoError(t, f.Apply(kind, "sub", json.RawMessage(`{"block":{"id":"a"},"blockId":7}`)), kind)
	}
	f.Add(conversation.Event{Type: conversation.EventTitle, Data: conversation.Title{Title: "x"}})
	f.Add(conversation.Event{Type: "of the future"})
	require.Equal(t, main(), f.Conversation())
}

func TestDataOfWrongShapeIsErrorAndChangesNothing(t *testing.T) {
	t.Parallel()
	for _, kind := range []conversation.EventType{
		conversation.EventBlockStart, conversation.EventTextDelta, conversation.EventBlockUpdate,
		conversation.EventBlockComplete, conversation.EventBlockRemoved,
	} {
		var f conversation.Folder
		for _, data := range []string{``, `{`, `[]`, `"x"`, `{"block":7,"blockId":7}`} {
			require.ErrorContains(t, f.Apply(kind, "main", json.RawMessage(data)), string(kind), data)
		}
		require.Equal(t, main(), f.Conversation(), kind)
	}
}

func TestConversationIsCopy(t *testing.T) {
	t.Parallel()
	var f conversation.Folder
	f.Add(begin("main", text("a", "", conversation.Streaming)))
	before := f.Conversation()
	f.Add(delta("main", "a", "more"))
	f.Add(complete("main", text("b", "b", conversation.Complete)))
	require.Equal(t, main(text("a", "", conversation.Streaming)), before)
}

// TestStartingLateEndsInSameBlocks: a reader that starts anywhere in a stream sees every block
// that completes after that point like any other reader.
func TestStartingLateEndsInSameBlocks(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		ids := []string{"a", "b", "c", "d"}
		var events []conversation.Event
		want := map[string]string{}
		for _, id := range ids {
			events = append(events, begin("main", text(id, "", conversation.Streaming)))
		}
		for range rapid.IntRange(0, 30).Draw(t, "deltas") {
			id, d := rapid.SampledFrom(ids).Draw(t, "id"), rapid.String().Draw(t, "delta")
			events = append(events, delta("main", id, d))
			want[id] += d
		}
		late := rapid.IntRange(0, len(events)).Draw(t, "late")
		for _, id := range rapid.Permutation(ids).Draw(t, "order") {
			events = append(events, complete("main", text(id, want[id], conversation.Complete)))
		}
		got := fold(t, events[late:]...)
		blocks := got.Threads[0].Blocks
		if len(blocks) != len(ids) {
			t.Fatalf("%d blocks", len(blocks))
		}
		for _, b := range blocks {
			if b.Content != want[b.ID] || b.Status != conversation.Complete {
				t.Fatalf("%s is %q, want %q", b.ID, b.Content, want[b.ID])
			}
		}
	})
}
