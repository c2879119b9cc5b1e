package postgres_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/eventlog"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// TestEventsOfManySessionsAreReadInOneStatement fills pages with different bounds, of sessions with and
// without further events, and of some that do not exist.
func TestEventsOfManySessionsAreReadInOneStatement(t *testing.T) {
	t.Parallel()
	b := setup(t)
	other, _, err := b.SessionCreate(b.ctx, session.Session{ID: session.NewID(session.SessionPrefix), Agent: "demo", Lazy: true}, nil, session.Idempotency{})
	require.NoError(t, err)
	for _, id := range []string{b.id, other.ID} {
		start, err := b.EventsPosition(b.ctx, id)
		require.NoError(t, err)
		var drafts []eventlog.Draft
		for seq := start + 1; seq <= 20; seq++ {
			drafts = append(drafts, eventlog.Draft{
				Type: "x", ConversationID: "main", At: time.UnixMilli(seq), Data: json.RawMessage(fmt.Sprintf(`{"n": %d, "s":"\u0000ä"}`, seq)),
			})
		}
		verdicts, err := b.EventsAppend(b.ctx, []eventlog.Append{{SessionID: id, Events: drafts}})
		require.NoError(t, err)
		require.NoError(t, verdicts[0])
	}
	require.NoError(t, b.EventsPrune(b.ctx, other.ID, 5))
	format := eventlog.Format{
		Head: func(dst []byte, e *eventlog.Event) []byte {
			require.Equal(t, e.Seq, e.At.UnixMilli())
			require.Equal(t, "x main", strings.TrimSpace(e.Type+" "+e.ConversationID+" "+e.RunID))
			return fmt.Appendf(dst, "%d", e.Seq)
		},
		Tail: "\n",
	}
	page := func(id string, after int64) *eventlog.Page { return eventlog.NewPage(&format, id, after) }
	frames := func(p *eventlog.Page) (first, last int64) {
		got := p.Batch()
		for i, frame := range strings.Split(strings.TrimSpace(string(got.Frames)), "\n") {
			if got.Len() > 0 {
				seq := got.After + 1 + int64(i)
				require.Equal(t, fmt.Sprintf(`%d{"n": %d, "s":"\u0000ä"}`, seq, seq), frame, "as it was written")
			}
		}
		return got.After, got.Last
	}
	limited, through, small := page(b.id, 12), page(b.id, 12), page(b.id, 12)
	limited.Limit, through.Through, small.Bytes = 3, 14, 1
	pages := []*eventlog.Page{page("ses_none", 0), page(b.id, 15), page(b.id, 20), limited, page("ses_none", 5), through, small, page(other.ID, 2), page("ses_none", 9)}
	require.NoError(t, b.EventsRead(b.ctx, pages))
	for i, want := range []string{"", "15-20 of 1-20", "20-20 of 1-20", "12-15 of 1-20", "", "12-14 of 1-20", "12-13 of 1-20", "5-20 of 6-20", ""} {
		bounds, err := pages[i].Found()
		if want == "" {
			require.Equal(t, failure.NoSession, failure.CodeOf(err), i)
			continue
		}
		require.NoError(t, err)
		after, last := frames(pages[i])
		require.Equal(t, want, fmt.Sprintf("%d-%d of %d-%d", after, last, bounds.First, bounds.Newest), i)
	}
}
