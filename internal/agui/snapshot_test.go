package agui_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/agui"
	"github.com/overwinter-dev/overwinter/internal/conversation"
)

// If the oldest blocks of the conversation were not read, the prompt's message is in front if its
// turn has begun.
func TestSnapshotOfEndOfConversation(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		leftOut int64
		begun   bool
		order   string
		count   int
	}{
		{0, true, "said asked", 0},  // it has not reached the agent yet
		{7, false, "said asked", 7}, // it waits
		{7, true, "asked said", 6},  // its message is one of the omitted ones
		{0, false, "said asked", 0},
	} {
		s := agui.NewSnapshot("p1", c.leftOut)
		s.Add(conversation.Main, conversation.Block{ID: "b1", Type: conversation.AssistantText, Status: conversation.Complete, Content: "said"})
		s.AddPrompt("asked", c.begun)
		text := string(agui.NewEncoder("ses_1", "r1", "p1").Snapshot(s))
		var order []string
		for frame := range strings.SplitSeq(strings.TrimSpace(text), "\n\n") {
			var e struct {
				Type, Name string
				Value      struct{ Count int }
				Messages   []struct{ Content string }
			}
			require.NoError(t, json.Unmarshal([]byte(strings.TrimPrefix(frame, "data: ")), &e))
			if e.Name == "messages_left_out" {
				require.Equal(t, c.count, e.Value.Count)
			}
			for _, m := range e.Messages {
				order = append(order, m.Content)
			}
		}
		require.Equal(t, c.order, strings.Join(order, " "), "%+v", c)
		require.Equal(t, c.count > 0, strings.Contains(text, "messages_left_out"))
	}
}
