package postgres_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/eventlog"
)

// TestPageOfEventsIsBoundedInBytes reads a log of large events.
func TestPageOfEventsIsBoundedInBytes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const events = 40
	large := json.RawMessage(fmt.Sprintf(`{"message":%q}`, strings.Repeat("<", 200<<10)))
	for range events {
		verdicts, err := b.EventsAppend(b.ctx, []eventlog.Append{{SessionID: b.id, Events: []eventlog.Draft{{Type: "error", Data: large}}}})
		require.NoError(t, err)
		require.NoError(t, verdicts[0])
	}
	after, pages := int64(0), 0
	for after < events {
		page, err := b.EventsPage(b.ctx, b.id, after, 256)
		require.NoError(t, err)
		require.NotEmpty(t, page)
		bytes := 0
		for i, e := range page {
			require.Equal(t, after+1+int64(i), e.Seq)
			bytes += len(e.Data)
		}
		require.Less(t, bytes, eventlog.PageBytes+len(large))
		after += int64(len(page))
		pages++
	}
	require.Equal(t, 20, pages)
}
