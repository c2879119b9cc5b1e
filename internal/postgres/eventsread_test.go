package postgres_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/eventlog"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/postgres"
	"github.com/overwinter-dev/overwinter/internal/run"
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

// TestPageNamesRunAndConversationOfEachEvent reads pages of several sizes of a log with
// three runs, events of the store between them, and the conversations of two subagents.
func TestPageNamesRunAndConversationOfEachEvent(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.running(t)
	for i, conversations := range [][]string{{"main"}, {"main", "toolu_1", "main"}, {"toolu_2", "", "toolu_1"}} {
		runID := b.begin(t, b.submit(t, fmt.Sprint("prompt ", i)))
		a := eventlog.Append{SessionID: b.id, RunID: runID, Token: "t1", Generation: 1, LastFrame: int64(len(conversations))}
		for n, id := range conversations {
			d := draft("error", int64(n+1), 0, `{}`)
			d.ConversationID = id
			a.Events = append(a.Events, d)
		}
		require.NoError(t, b.appendOne(t, a))
		_, err := b.RunEnd(b.ctx, run.Ending{RunID: runID, Token: "t1", Outcome: session.OutcomeCompleted})
		require.NoError(t, err)
	}
	conn, err := pgx.Connect(b.ctx, b.url)
	require.NoError(t, err)
	defer conn.Close(b.ctx)
	rows, err := conn.Query(b.ctx, `SELECT e.seq || ' ' || coalesce(r.id, '') || ' ' || coalesce(c.id, CASE e.conversation_no WHEN 1 THEN 'main' ELSE '' END)
		FROM event_log e LEFT JOIN runs r ON r.session_id = $1 AND r.no = e.run_no
		LEFT JOIN event_conversations c ON c.session_no = e.session_no AND c.no = e.conversation_no
		WHERE e.session_no = (SELECT no FROM sessions WHERE id = $1) ORDER BY e.seq`, b.id)
	require.NoError(t, err)
	want, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	require.Contains(t, strings.Join(want, "\n"), "toolu_2")
	for _, limit := range []int{1, 2, 5, 1000} {
		var got []string
		for len(got) < len(want) {
			page, err := b.EventsPage(b.ctx, b.id, int64(len(got)), limit)
			require.NoError(t, err)
			require.NotEmpty(t, page)
			for _, e := range page {
				got = append(got, fmt.Sprintf("%d %s %s", e.Seq, e.RunID, e.ConversationID))
			}
		}
		require.Equal(t, want, got, "pages of %d", limit)
	}
}

// TestReadingEventAllocatesNothing: a reader that catches up may read a million events.
func TestReadingEventAllocatesNothing(t *testing.T) { //nolint:paralleltest // allocations are counted
	b := setup(t)
	b.sql(t, `WITH s AS (UPDATE sessions SET last_seq = last_seq + 2000 WHERE id = $1 RETURNING no, last_seq)
		INSERT INTO event_log (session_no, seq, at, run_no, conversation_no, type, data)
		SELECT s.no, s.last_seq - 2000 + n, now(), 0, 1, 'text_delta', '{"blockId":"1","delta":"word "}' FROM s, generate_series(1, 2000) n`, b.id)
	read := func(limit int) func() {
		page := eventlog.NewPage(&eventlog.Format{}, b.id, 1)
		return func() {
			page.Reset(b.id, 1)
			page.Limit = limit
			require.NoError(t, b.EventsRead(b.ctx, []*eventlog.Page{page}))
			batch := page.Batch()
			require.Equal(t, limit, batch.Len())
		}
	}
	one, all := testing.AllocsPerRun(20, read(1)), testing.AllocsPerRun(20, read(1000))
	require.Less(t, all-one, 200.0, "of 1000 events")
}

// TestRowsOfPageInAnotherOrderAreRefused checks that they cause an error instead of events without
// the ids of their runs.
func TestRowsOfPageInAnotherOrderAreRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const (
		bounds = "SELECT 1::bigint, 5::bigint, 1::bigint, 0, 0, now(), ''::text, NULL::text"
		name   = "SELECT 1, -1, 0, 3, 0, now(), 'run_1', NULL"
		event  = "SELECT 1, -1, 5, 3, 1, now(), 'text_delta', '{}'"
	)
	for order, want := range map[string]error{
		bounds + " UNION ALL " + name + " UNION ALL " + event: nil,
		bounds + " UNION ALL " + event + " UNION ALL " + name: postgres.ErrRowOrder,
	} {
		page := eventlog.NewPage(&eventlog.Format{}, b.id, 4)
		require.ErrorIs(t, b.FillPages(b.ctx, order, page), want)
	}
}
