package postgres_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/eventlog"
)

// A page from the end contains the newest blocks that fit, and at least one.
func TestEndOfConversation(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.running(t)
	run := b.begin(t, b.submit(t, "1"))
	const blocks = 30
	add := eventlog.Append{SessionID: b.id, RunID: run, Generation: 1, Token: "t1", LastFrame: 1}
	for i := range blocks {
		data := fmt.Sprintf(`{"block":{"id":"b%d","type":"assistant_text","status":"complete","createdAt":"2026-01-01T00:00:00Z","content":%q}}`, i, strings.Repeat("x", 900))
		add.Events = append(add.Events, draft("block_start", 1, 2*i, data), draft("block_complete", 1, 2*i+1, data))
	}
	require.NoError(t, b.appendOne(t, add))
	for _, c := range []struct {
		bytes int64
		limit int
		want  int
	}{{10_500, 1000, 10}, {1 << 30, 7, 7}, {1, 1000, 1}, {1 << 30, 1, 1}, {1 << 30, 29, 29}, {1 << 30, blocks, blocks}, {1 << 30, 1000, blocks}} {
		cursor, leftOut, err := b.ConversationTail(b.ctx, b.id, c.bytes, c.limit)
		require.NoError(t, err)
		require.Equal(t, c.want == blocks, cursor == "")
		page, next, err := b.ConversationPage(b.ctx, b.id, 0, cursor)
		require.NoError(t, err)
		require.Empty(t, next)
		got := page.Threads[0].Blocks
		require.Len(t, got, c.want, "%+v", c)
		require.Equal(t, fmt.Sprintf("b%d", blocks-c.want), got[0].ID)
		require.EqualValues(t, blocks-c.want, leftOut)
		position, err := b.EventsPosition(b.ctx, b.id)
		require.NoError(t, err)
		require.Equal(t, position, page.Seq)
	}
	_, _, err := b.ConversationTail(b.ctx, "ses_none", 1, 1)
	require.Error(t, err)
}
