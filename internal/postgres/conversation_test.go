package postgres_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/eventlog"
	"github.com/overwinter-dev/overwinter/internal/postgres"
)

// TestConversationIsReadInPages reads a long conversation in pages while it grows. The pages and
// the events after them yield the whole conversation.
func TestConversationIsReadInPages(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.running(t)
	run := b.begin(t, b.submit(t, "1"))
	frame := int64(0)
	add := func(conversationID, kind, data string) {
		d := draft(kind, frame, 0, data)
		d.ConversationID = conversationID
		require.NoError(t, b.appendOne(t, eventlog.Append{
			SessionID: b.id, RunID: run, Generation: 1, Token: "t1", LastFrame: frame, Events: []eventlog.Draft{d},
		}))
		frame++
	}
	block := func(id, status, content string) string {
		return fmt.Sprintf(`{"block":{"id":%q,"type":"assistant_text","status":%q,"createdAt":"2026-01-01T00:00:00Z","content":%q}}`, id, status, content)
	}
	large := strings.Repeat("x", 100<<10)
	for i := range 25 {
		add([]string{"main", "helper"}[i%2], "block_complete", block(fmt.Sprint("done", i), "complete", large))
	}
	for i := range 12 { // more than a page contains
		id := fmt.Sprint("live", i)
		add("main", "block_start", block(id, "streaming", "begun "))
		add("main", "text_delta", fmt.Sprintf(`{"blockId":%q,"delta":%q}`, id, large))
	}
	require.Equal(t, foldAll(t, b, 0, nil), withoutSeq(t, b, 0))
	require.Equal(t, foldAll(t, b, 0, nil), withoutSeq(t, b, 7))

	pages, cursor, first := 0, "", int64(0)
	var folder conversation.Folder
	for {
		page, next, err := b.ConversationPage(b.ctx, b.id, 0, cursor)
		require.NoError(t, err)
		encoded, err := json.Marshal(page)
		require.NoError(t, err)
		require.Less(t, len(encoded), 1200<<10)
		if pages == 0 {
			first = page.Seq
		}
		require.Equal(t, first, page.Seq, "every page is of the position at which the first was read")
		for _, thread := range page.Threads {
			for _, shown := range thread.Blocks {
				folder.Add(conversation.Event{Type: conversation.EventBlockStart, ConversationID: thread.ID, Data: conversation.BlockStart{Block: shown}})
			}
		}
		// The conversation grows between the pages.
		add("main", "text_delta", `{"blockId":"live11","delta":" and on"}`)
		add("main", "block_complete", block(fmt.Sprint("live", pages), "complete", "over"))
		add("main", "block_complete", block(fmt.Sprint("new", pages), "complete", "new"))
		if pages++; next == "" {
			break
		}
		cursor = next
	}
	require.Greater(t, pages, 3)
	require.Equal(t, foldAll(t, b, 0, nil), foldAll(t, b, first, &folder))

	_, _, err := b.ConversationPage(b.ctx, b.id, 0, "wrong")
	require.ErrorContains(t, err, "cursor")
}

func withoutSeq(t *testing.T, b *harness, limit int) conversation.Conversation {
	t.Helper()
	c, err := postgres.ReadConversation(b.ctx, b.DB, b.id, limit)
	require.NoError(t, err)
	c.Seq = 0
	return c
}

// foldAll folds the events after a position into a conversation.
func foldAll(t *testing.T, b *harness, after int64, into *conversation.Folder) conversation.Conversation {
	t.Helper()
	if into == nil {
		into = &conversation.Folder{}
	}
	for _, e := range b.events(t) {
		if e.Seq > after {
			require.NoError(t, into.Apply(conversation.EventType(e.Type), e.ConversationID, e.Data))
		}
	}
	return into.Conversation()
}
