package postgres_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
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
		bounds = "SELECT 1::bigint, 5::bigint, 1::bigint, 0, 0, now(), ''::text, NULL::text, NULL::bytea"
		name   = "SELECT 1, -1, 0, 3, 0, now(), 'run_1', NULL, NULL"
		event  = "SELECT 1, -1, 5, 3, 1, now(), 'text_delta', '{}', NULL"
		packed = "SELECT 1, -1, 5, 0, 0, now(), 'text_delta', '{}', " + onePacked
	)
	for order, want := range map[string]error{
		bounds + " UNION ALL " + name + " UNION ALL " + event:  nil,
		bounds + " UNION ALL " + event + " UNION ALL " + name:  postgres.ErrRowOrder,
		bounds + " UNION ALL " + name + " UNION ALL " + packed: nil,
		bounds + " UNION ALL " + packed + " UNION ALL " + name: postgres.ErrRowOrder,
	} {
		page := eventlog.NewPage(&eventlog.Format{}, b.id, 4)
		require.ErrorIs(t, b.FillPages(b.ctx, order, page), want)
	}
}

// onePacked is one event of run 3 and the main conversation, with a type of 10 bytes and data of 2.
const onePacked = `'\x00000003000094020000000000000000'::bytea`

// TestPackedEventsOfOtherLengthsAreRefused checks that they cause an error instead of events with the data of
// others.
func TestPackedEventsOfOtherLengthsAreRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const (
		oneLarge = `'\x00000003000095ff0000000000000000'::bytea` // as onePacked, but its data is in a separate row
		large    = "SELECT 1::bigint, -1::bigint, 5::bigint, 0, -1, now(), ''::text, 'large'::text, NULL::bytea UNION ALL "
	)
	for row, want := range map[string]error{
		"'text_delta', '{}', " + onePacked:                nil,
		"'text_delta', '{}{}', " + onePacked:              postgres.ErrPacked,
		"'text_delta', '{', " + onePacked:                 postgres.ErrPacked,
		"'text_deltas', '{}', " + onePacked:               postgres.ErrPacked,
		"'text', '{}', " + onePacked:                      postgres.ErrPacked,
		"'text_delta', '{}', " + onePacked + ` || '\x00'`: postgres.ErrPacked,
		"'text_delta', '{}', ''::bytea":                   postgres.ErrPacked,
		"'text_delta', '', " + oneLarge:                   postgres.ErrPacked,
	} {
		page := eventlog.NewPage(&eventlog.Format{}, b.id, 4)
		require.ErrorIs(t, b.FillPages(b.ctx, "SELECT 1::bigint, -1::bigint, 5::bigint, 0, 0, now(), "+row, page), want, row)
	}
	for row, want := range map[string]error{
		large + "SELECT 1, -1, 5, 0, 0, now(), 'text_delta', '', " + oneLarge:                                               nil,
		strings.Replace(large, "5::bigint", "6::bigint", 1) + "SELECT 1, -1, 5, 0, 0, now(), 'text_delta', '', " + oneLarge: postgres.ErrPacked,
		large + large + "SELECT 1, -1, 5, 0, 0, now(), 'text_delta', '', " + oneLarge:                                       postgres.ErrPacked,
		large + "SELECT 1, -1, 5, 0, 0, now(), 'text_delta', '{}', " + onePacked:                                            postgres.ErrPacked,
	} {
		page := eventlog.NewPage(&eventlog.Format{}, b.id, 4)
		require.ErrorIs(t, b.FillPages(b.ctx, row, page), want, row)
	}
}

// TestPackedPagesHaveEventsAsStored reads logs whose pages can be packed, and logs with an event that prevents that, in
// pages of several sizes.
func TestPackedPagesHaveEventsAsStored(t *testing.T) {
	t.Parallel()
	const (
		position = 100 // of the special event
		unpacked = -1  // a row per event
	)
	for name, c := range map[string]struct {
		set    string // what distinguishes the event
		rows   int    // rows with data
		others string // which events are like it
	}{
		"no other event":      {"seq = seq", 1, "="},
		"longest small data":  {`data = '"' || repeat('ä', 254) || '"'`, 1, "="},
		"shortest large data": {`data = '"' || repeat('a', 509) || '"'`, 2, "="},
		"data out of line":    {`data = '"' || repeat('a', 100000) || '"'`, 2, "="},
		"some large data":     {`data = '"' || seq || repeat('a', 1000) || '"'`, 11, "% 5 = 0 AND seq % 2 = 0 AND seq <="},
		"mostly large data":   {`data = '"' || seq || repeat('a', 1000) || '"'`, unpacked, ">="},
		"longest type":        {"type = repeat('t', 63)", 1, "="},
		"longer type":         {"type = repeat('t', 64)", unpacked, "="},
		"far too long type":   {"type = repeat('t', 100000)", unpacked, "="},
		"half of all numbers": {"conversation_no = 65536", 1, "="},
		"last conversation":   {"conversation_no = 131071", 1, "="},
		"later conversation":  {"conversation_no = 131072", unpacked, "="},
		"no run":              {"run_no = 0, conversation_no = 0", 1, "="},
		"last run":            {"run_no = 2147483647, conversation_no = 131071", 1, "="},
		"before other epoch":  {"at = '1969-12-31 23:59:59.999999Z'", 1, "="},
		"far in the future":   {"at = '9999-12-31 23:59:59.999999Z'", 1, "="},
		"dropped":             {"session_no = -session_no", unpacked, "="},
		"line breaks":         {`data = E'{\n\t"a":\x01\r}'`, 1, "="},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.running(t)
			first := b.begin(t, b.submit(t, "hello"))
			_, err := b.RunEnd(b.ctx, run.Ending{RunID: first, Token: "t1", Outcome: session.OutcomeCompleted})
			require.NoError(t, err)
			last := b.begin(t, b.submit(t, "hello"))
			b.sql(t, "UPDATE runs SET no = 2147483647 WHERE id = $1", last)
			b.sql(t, "DELETE FROM event_log WHERE session_no = (SELECT no FROM sessions WHERE id = $1)", b.id)
			b.sql(t, `WITH s AS (UPDATE sessions SET last_seq = 200 WHERE id = $1 RETURNING no), c AS (
				INSERT INTO event_conversations (session_no, no, id) SELECT s.no, n, 'toolu_' || n FROM s, unnest('{2, 3, 65536, 131071, 131072}'::int[]) n)
				INSERT INTO event_log (session_no, seq, at, run_no, conversation_no, type, data)
				SELECT s.no, n, now() + n * interval '1ms', 1, n % 4, repeat('x', n % 3 + 1), '{"n":' || n || ',"s":"' || repeat('ß', n % 7) || '"}'
				FROM s, generate_series(1, 200) n`, b.id)
			b.sql(t, `UPDATE event_log SET `+c.set+` WHERE session_no = (SELECT no FROM sessions WHERE id = $1) AND seq `+c.others+` $2`, b.id, position)
			conn, err := pgx.Connect(b.ctx, b.url)
			require.NoError(t, err)
			defer conn.Close(b.ctx)
			rows, err := conn.Query(b.ctx, `SELECT e.seq || ' ' || to_char(e.at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.US') || ' ' || e.type || ' ' ||
				coalesce(r.id, '') || ' ' || coalesce(c.id, CASE e.conversation_no WHEN 1 THEN 'main' ELSE '' END) || ' ' || e.data
				FROM event_log e LEFT JOIN event_conversations c ON c.session_no = e.session_no AND c.no = e.conversation_no
				LEFT JOIN runs r ON r.session_id = $1 AND r.no = e.run_no
				WHERE e.session_no = (SELECT no FROM sessions WHERE id = $1) ORDER BY e.seq`, b.id)
			require.NoError(t, err)
			want, err := pgx.CollectRows(rows, pgx.RowTo[string])
			require.NoError(t, err)
			for _, read := range []struct{ after, limit int }{{0, 1}, {0, 7}, {0, 100}, {0, 1000}, {50, 1000}, {98, 1000}, {150, 1000}} {
				want, got := slices.Clone(want), []string(nil)
				want = slices.DeleteFunc(want, func(line string) bool {
					seq, err := strconv.Atoi(strings.Fields(line)[0])
					require.NoError(t, err)
					return seq <= read.after
				})
				for after := int64(read.after); len(got) < len(want); {
					page, err := b.EventsPage(b.ctx, b.id, after, read.limit)
					require.NoError(t, err)
					require.NotEmpty(t, page)
					for _, e := range page {
						got = append(got, fmt.Sprintf("%d %s %s %s %s %s", e.Seq, e.At.Format("2006-01-02 15:04:05.000000"), e.Type, e.RunID, e.ConversationID, e.Data))
						after = e.Seq
					}
				}
				require.Equal(t, want, got, "pages of %d events after %d", read.limit, read.after)
			}
			n, err := b.EventRows(b.ctx, b.id, 1000)
			require.NoError(t, err)
			if c.rows == unpacked {
				c.rows = len(want)
			}
			require.Equal(t, c.rows, n, "rows with data")
		})
	}
}

// TestTextOfAnotherEncodingIsNotPacked: the lengths of packed events are those of the server's encoding.
func TestTextOfAnotherEncodingIsNotPacked(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.sql(t, `WITH s AS (UPDATE sessions SET last_seq = last_seq + 2 WHERE id = $1 RETURNING no, last_seq)
		INSERT INTO event_log (session_no, seq, at, run_no, conversation_no, type, data)
		SELECT s.no, s.last_seq - 2 + n, now(), 0, 1, 'text_delta', '{"s":"ä"}' FROM s, generate_series(1, 2) n`, b.id)
	db, err := postgres.Open(b.ctx, b.url+"&client_encoding=LATIN1", postgres.Options{})
	require.NoError(t, err)
	defer db.Close()
	for client, want := range map[*postgres.DB]int{b.DB: 1, db: 2} {
		n, err := client.EventRows(b.ctx, b.id, 1000)
		require.NoError(t, err)
		require.Equal(t, want, n, "rows with data")
	}
}
