package compaction

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/agent/agenttest/capture"
	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/eventlog"
	"github.com/overwinter-dev/overwinter/internal/feed"
	"github.com/overwinter-dev/overwinter/internal/postgres"
	"github.com/overwinter-dev/overwinter/internal/postgres/postgrestest"
	"github.com/overwinter-dev/overwinter/internal/session"
	"github.com/overwinter-dev/overwinter/test/recorded"
)

// bundle has a database and a follower of its logs.
type bundle struct {
	*postgres.DB
	url      string
	follower *eventlog.Follower
}

func setup(t *testing.T) *bundle {
	t.Helper()
	url := postgrestest.URL(t)
	b := &bundle{DB: postgrestest.Open(t, url), url: url}
	// Small pages, so that they end at any point of the dropped events.
	b.follower = eventlog.NewFollower(b.DB, eventlog.FollowerOptions{Format: feed.Format(), PageEvents: 7, Linger: -1})
	b.follower.Start()
	t.Cleanup(b.follower.Stop)
	return b
}

// session stores a log and returns its session.
func (b *bundle) session(t *testing.T, log []recorded.Event) string {
	t.Helper()
	s, _, err := b.SessionCreate(t.Context(), session.Session{ID: session.NewID(session.SessionPrefix), Agent: "demo", Lazy: true}, nil, session.Idempotency{})
	require.NoError(t, err)
	a := eventlog.Append{SessionID: s.ID}
	for _, e := range log {
		a.Events = append(a.Events, eventlog.Draft{Type: e.Type, ConversationID: e.ConversationID, At: capture.Begun, Data: e.Data})
	}
	verdicts, err := b.EventsAppend(t.Context(), []eventlog.Append{a})
	require.NoError(t, err)
	require.NoError(t, verdicts[0])
	return s.ID
}

// compact compacts all logs and returns how many events it has dropped.
func (b *bundle) compact(t *testing.T) (dropped int64) {
	t.Helper()
	for after := int64(0); ; {
		next, n, err := b.EventsCompact(t.Context(), time.Hour, after, 10, 1000)
		require.NoError(t, err)
		if dropped += n; next == 0 {
			return dropped
		}
		after = next
	}
}

// blocks returns the stored conversation.
func (b *bundle) blocks(t *testing.T, id string) []conversation.Thread {
	t.Helper()
	var threads []conversation.Thread
	for cursor := ""; ; {
		page, next, err := b.ConversationPage(t.Context(), id, 0, cursor)
		require.NoError(t, err)
		if threads = append(threads, page.Threads...); next == "" {
			return threads
		}
		cursor = next
	}
}

// read is the result of reading a log after a position.
type read struct {
	events map[int64]eventlog.Event
	gaps   []feed.Gap
}

// read reads the log after a position to its end, and requires that each position after it is in one event or one gap, in order.
func (b *bundle) read(t *testing.T, id string, after int64) read {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	f, err := feed.New(feed.Of(b.follower), b.DB).Open(ctx, id, after, 0)
	require.NoError(t, err)
	defer f.Close()
	out := read{events: map[int64]eventlog.Event{}}
	for at := after; ; at = f.Position() {
		item, err := f.Next(ctx)
		require.NoError(t, err)
		if item.Gap != nil {
			require.True(t, item.Gap.Compacted)
			require.Equal(t, at+1, item.Gap.From)
			require.GreaterOrEqual(t, item.Gap.To, item.Gap.From)
			if n := len(out.gaps); n > 0 {
				require.Less(t, out.gaps[n-1].To+1, item.Gap.From, "missing events between two events are one gap")
			}
			at = item.Gap.To
			out.gaps = append(out.gaps, *item.Gap)
		}
		for seq, line := range feed.Events(item.Events) {
			at++
			require.Equal(t, at, seq)
			out.events[seq], err = feed.Decode(line)
			require.NoError(t, err)
			out.events[seq] = clone(out.events[seq])
		}
		require.Equal(t, at, f.Position())
		if item.CaughtUp {
			return out
		}
	}
}

func clone(e eventlog.Event) eventlog.Event {
	e.Data = append([]byte(nil), e.Data...)
	return e
}

// fold returns the conversation that results from the events of a log.
func fold(t *testing.T, r read, newest int64) []conversation.Thread {
	t.Helper()
	var f conversation.Folder
	for seq := int64(1); seq <= newest; seq++ {
		if e, ok := r.events[seq]; ok {
			require.NoError(t, f.Apply(conversation.EventType(e.Type), e.ConversationID, e.Data))
		}
	}
	return f.Conversation().Threads
}

// TestCompactedLogFoldsToSameConversation compacts the recordings of all agents, and reads them from every position.
func TestCompactedLogFoldsToSameConversation(t *testing.T) {
	t.Parallel()
	b := setup(t)
	type stored struct {
		id     string
		newest int64
		full   read
		blocks []conversation.Thread
	}
	logs := map[string]*stored{}
	var deltas int
	for name, log := range recorded.Logs(t, "../..") {
		if len(log) == 0 {
			continue
		}
		s := &stored{id: b.session(t, log), newest: int64(len(log))}
		s.full, s.blocks = b.read(t, s.id, 0), b.blocks(t, s.id)
		require.Len(t, s.full.events, len(log))
		require.Empty(t, s.full.gaps)
		for _, e := range log {
			if e.Type == string(conversation.EventTextDelta) {
				deltas++
			}
		}
		logs[name] = s
	}
	dropped := b.compact(t)
	t.Logf("%d of %d deltas of %d logs were dropped", dropped, deltas, len(logs))
	require.Greater(t, dropped, int64(deltas)/2)
	require.Zero(t, b.compact(t), "there is nothing left to do")

	var missing int64
	for name, s := range logs {
		whole := b.read(t, s.id, 0)
		missing += s.newest - int64(len(whole.events))
		require.Equal(t, fold(t, s.full, s.newest), fold(t, whole, s.newest), name)
		require.Equal(t, s.blocks, b.blocks(t, s.id), name)
		for seq, e := range s.full.events {
			kept, ok := whole.events[seq]
			require.True(t, ok || e.Type == string(conversation.EventTextDelta), "%s: event %d (%s) is gone", name, seq, e.Type)
			if ok {
				require.Equal(t, e, kept, "%s: event %d has changed", name, seq)
			}
		}
		// A reader that returns at any position gets the same events and, within a gap, the rest of
		// the gap.
		for after := range s.newest + 1 {
			got := b.read(t, s.id, after)
			for seq := after + 1; seq <= s.newest; seq++ {
				e, ok := whole.events[seq]
				have, again := got.events[seq]
				require.Equal(t, ok, again, "%s: event %d after %d", name, seq, after)
				require.Equal(t, e, have)
			}
		}
	}
	require.Equal(t, dropped, missing)
}

// TestReadersFollowWhileTheirLogIsCompacted reads at different positions, connected and not, while
// compaction processes the log in small steps and is killed repeatedly.
func TestReadersFollowWhileTheirLogIsCompacted(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var log []recorded.Event
	delta := func(block, text string) recorded.Event {
		return recorded.Event{Type: "text_delta", ConversationID: "main", Data: []byte(`{"blockId":"` + block + `","delta":"` + text + `"}`)}
	}
	for _, block := range []string{"a", "b", "c", "d"} {
		log = append(log, recorded.Event{Type: "block_start", ConversationID: "main", Data: []byte(`{"block":{"id":"` + block + `","type":"assistant_text","status":"streaming"}}`)})
		for range 900 {
			log = append(log, delta(block, "x"))
		}
		if block != "d" { // the last one is still being written
			log = append(log, recorded.Event{Type: "block_complete", ConversationID: "main", Data: []byte(`{"block":{"id":"` + block + `","type":"assistant_text","status":"complete","content":"whole"}}`)})
		}
	}
	id, newest := b.session(t, log), int64(len(log))
	full := b.read(t, id, 0)
	want := fold(t, full, newest)

	done := make(chan int64)
	go func() {
		var dropped int64
		defer func() { done <- dropped }()
		for limit := 5 * time.Millisecond; dropped < 2700; limit = min(2*limit, time.Minute) { // longer each time, so that a busy machine makes progress too
			// A call that ends in the middle is equivalent to a killed worker, because each piece
			// is one transaction.
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			_, _, err := b.EventsCompact(ctx, time.Hour, 0, 10, 100_000)
			cancel()
			if err != nil && t.Context().Err() != nil {
				return
			}
			kept, err := b.count(t, id)
			if err != nil {
				return
			}
			dropped = newest - kept
		}
	}()
	for compacting := true; compacting; {
		select {
		case dropped := <-done:
			require.EqualValues(t, 2700, dropped)
			compacting = false
		default:
		}
		for _, after := range []int64{0, 1, 500, 902, 903, 1500, 2706, 3000} {
			got := b.read(t, id, after)
			for seq := after + 1; seq <= newest; seq++ {
				if e, ok := got.events[seq]; ok {
					require.Equal(t, full.events[seq], e)
				} else {
					require.Equal(t, "text_delta", full.events[seq].Type)
					require.Less(t, seq, int64(2706), "the last block is not complete")
				}
			}
			if after == 0 {
				require.Equal(t, want, fold(t, got, newest))
			}
		}
	}
	require.Equal(t, []feed.Gap{{From: 2, To: 901, Compacted: true}, {From: 904, To: 1803, Compacted: true}, {From: 1806, To: 2705, Compacted: true}}, b.read(t, id, 0).gaps)
	require.Equal(t, []feed.Gap{{From: 1001, To: 1803, Compacted: true}, {From: 1806, To: 2705, Compacted: true}}, b.read(t, id, 1000).gaps)
}

func (b *bundle) count(t *testing.T, id string) (n int64, err error) {
	conn, err := pgx.Connect(t.Context(), b.url)
	if err != nil {
		return 0, err
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	err = conn.QueryRow(t.Context(), "SELECT count(*) FROM event_log e JOIN sessions s ON s.no = e.session_no WHERE s.id = $1", id).Scan(&n)
	return n, err
}
