package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/aisdk"
	"github.com/overwinter-dev/overwinter/internal/eventlog"
	"github.com/overwinter-dev/overwinter/internal/postgres"
	"github.com/overwinter-dev/overwinter/internal/postgres/postgrestest"
	"github.com/overwinter-dev/overwinter/internal/run"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// spoken is a session whose log has two texts of the agent in one turn.
type spoken struct {
	id             string
	start          [2]int64 // the position of the block_start of each text
	deltas, newest int64
}

// speak stores a session with a turn.
func speak(t *testing.T, b *harness, db *postgres.DB) spoken {
	t.Helper()
	ctx := t.Context()
	s := spoken{id: b.do("POST", "/api/sessions", `{"agent":"demo","prompt":{"content":"hello","id":"m1"}}`).session().ID, deltas: 30}
	require.NoError(t, db.GenerationReserve(ctx, s.id, 1, "im-1"))
	require.NoError(t, db.TransitionRecord(ctx, session.Transition{
		SessionID: s.id, No: 1, From: session.Initializing, To: session.Running, Event: session.EventReady, Generation: 1, At: time.Now(),
	}))
	runID := session.NewID(session.RunPrefix)
	v, err := db.RunBegin(ctx, s.id, "m1", runID, 1)
	require.NoError(t, err)
	require.True(t, v.Granted)
	_, err = db.RunAttach(ctx, runID, "t1", run.Dispatch{No: 1, Attempt: 1}, nil)
	require.NoError(t, err)
	at, err := db.EventsPosition(ctx, s.id)
	require.NoError(t, err)
	a := eventlog.Append{SessionID: s.id, RunID: runID, Generation: 1, Token: "t1", LastFrame: 1}
	add := func(kind, data string) {
		a.Events = append(a.Events, eventlog.Draft{Type: kind, ConversationID: "main", At: time.Now(), Data: json.RawMessage(data), Frame: 1, N: len(a.Events)})
		at++
	}
	// A response of a Durable Stream ends with this event, long before the dropped events.
	add("block_complete", fmt.Sprintf(`{"block":{"id":"large","type":"system","status":"complete","message":%q,"createdAt":"2026-11-21T00:00:00Z"}}`, strings.Repeat("x", 300<<10)))
	for i, id := range []string{"a", "b"} {
		add("block_start", fmt.Sprintf(`{"block":{"id":%q,"type":"assistant_text","status":"streaming","createdAt":"2026-11-21T00:00:00Z"}}`, id))
		s.start[i] = at
		for range s.deltas {
			add("text_delta", fmt.Sprintf(`{"blockId":%q,"delta":"word "}`, id))
		}
		add("block_complete", fmt.Sprintf(`{"block":{"id":%q,"type":"assistant_text","status":"complete","content":%q,"createdAt":"2026-11-21T00:00:00Z"}}`,
			id, strings.Repeat("word ", int(s.deltas))))
	}
	verdicts, err := db.EventsAppend(ctx, []eventlog.Append{a})
	require.NoError(t, err)
	require.NoError(t, verdicts[0])
	_, err = db.RunEnd(ctx, run.Ending{RunID: runID, Token: "t1", Outcome: session.OutcomeCompleted})
	require.NoError(t, err)
	s.newest, err = db.EventsPosition(ctx, s.id)
	require.NoError(t, err)
	return s
}

// compact runs a compaction.
func compact(t *testing.T, db *postgres.DB, want int64) {
	t.Helper()
	_, dropped, err := db.EventsCompact(t.Context(), time.Nanosecond, 0, 10, 1000)
	require.NoError(t, err)
	require.Equal(t, want, dropped)
}

// TestPostgresCompactedLogIsReadByEveryProtocol reads a log from positions before, within and after
// the dropped events, with an api that has none of the log in memory.
func TestPostgresCompactedLogIsReadByEveryProtocol(t *testing.T) {
	t.Parallel()
	url := postgrestest.URL(t)
	before, db := setupPostgresAt(t, url)
	s := speak(t, before, db)
	path := "/api/sessions/" + s.id
	connected := before.stream(path + "/events?after=latest")
	require.Equal(t, []string{fmt.Sprintf(`caught_up {"seq":%d}`, s.newest)}, connected.brief(1))
	type messages = map[int64]json.RawMessage
	offset := func(after int64) string { return fmt.Sprintf("%s/stream?offset=%016d", path, after) }
	was := map[int64]messages{} // the responses of a Durable Stream at each offset
	read := func(a answer) messages {
		var events []json.RawMessage
		a.into(&events)
		out := messages{}
		for _, raw := range events {
			var e struct{ Seq int64 }
			require.NoError(t, json.Unmarshal(raw, &e))
			out[e.Seq] = raw
		}
		return out
	}
	for after := range s.newest + 1 {
		was[after] = read(before.do("GET", offset(after), ""))
	}
	whole := before.chat("GET", path+"/ai/stream?message=m1", "").body

	compact(t, db, 2*s.deltas)
	b, _ := setupPostgresAt(t, url)
	first, second := s.start[0], s.start[1]
	gap1 := fmt.Sprintf(`gap {"from":%d,"to":%d}`, first+1, first+s.deltas)
	gap2 := fmt.Sprintf(`gap {"from":%d,"to":%d}`, second+1, second+s.deltas)
	start := func(seq int64) string { return fmt.Sprintf("%d block_start", seq) }
	complete := func(seq int64) string { return fmt.Sprintf("%d block_complete", seq+s.deltas+1) }

	{ // Server-sent events.
		require.Equal(t, []string{start(first), gap1, complete(first), start(second), gap2, complete(second)},
			b.stream(fmt.Sprintf("%s/events?after=%d", path, first-1)).brief(6))
		inside := strings.Replace(gap1, fmt.Sprint(first+1), fmt.Sprint(first+11), 1)
		require.Equal(t, []string{inside, complete(first), start(second)}, b.stream(path+"/events", "Last-Event-ID", fmt.Sprint(first+10)).brief(3))
		require.Equal(t, []string{complete(first), start(second)}, b.stream(fmt.Sprintf("%s/events?after=%d", path, first+s.deltas)).brief(2))
	}
	{ // Pages.
		poll := func(query string) (text string) {
			var page struct {
				Items []struct{ Seq int64 }
				Gaps  []struct{ From, To int64 }
				After int64
			}
			b.do("GET", path+"/events?"+query, "", "Accept", "application/json").into(&page)
			for _, e := range page.Items {
				text += fmt.Sprint(e.Seq, " ")
			}
			for _, g := range page.Gaps {
				text += fmt.Sprintf("gap %d-%d ", g.From, g.To)
			}
			return text + fmt.Sprint("after ", page.After)
		}
		require.Equal(t, fmt.Sprintf("%d %d %d gap %d-%d after %d", first, first+31, second, first+1, first+30, second), poll(fmt.Sprintf("after=%d&limit=3", first-1)))
		require.Equal(t, fmt.Sprintf("%d gap %d-%d after %d", second+31, second+16, second+30, second+31), poll(fmt.Sprintf("after=%d&limit=1&wait=1m", second+15)))
		require.Equal(t, fmt.Sprintf("%d after %d", second+31, second+31), poll(fmt.Sprintf("after=%d&limit=1", second+30)))
	}
	{ // WebSockets.
		sock := b.socket(fmt.Sprintf("%s/ws?after=%d", path, first+10))
		require.Equal(t, "init", sock.next().Type)
		m := sock.next()
		require.Equal(t, "gap", m.Type)
		require.JSONEq(t, fmt.Sprintf(`{"from":%d,"to":%d}`, first+11, first+s.deltas), string(m.Data))
		require.Equal(t, first+s.deltas+1, sock.next().Seq)
		require.Equal(t, second, sock.next().Seq)
		require.Equal(t, "gap", sock.next().Type)
		require.Equal(t, second+s.deltas+1, sock.next().Seq)
	}
	{ // Durable Streams.
		for after, had := range was {
			a := b.do("GET", offset(after), "")
			if after < second+s.deltas {
				p := a.problem(http.StatusGone, "position_gone")
				require.Contains(t, p.Detail, fmt.Sprintf("offset=%016d", second+s.deltas), "it names where the stream begins")
				continue
			}
			require.Equal(t, had, read(a), "offset %d", after)
		}
		b.do("GET", path+"/stream", "").problem(http.StatusGone, "position_gone")
		b.do("GET", offset(first+5)+"&live=long-poll", "").problem(http.StatusGone, "position_gone")
		b.do("GET", offset(first+5)+"&live=sse", "").problem(http.StatusGone, "position_gone")
		require.Equal(t, fmt.Sprintf("%016d", s.newest), b.do("HEAD", path+"/stream", "").header.Get("Stream-Next-Offset"))
		// An api that has part of the log in memory gives the same responses.
		for after, had := range was {
			if a := before.do("GET", offset(after), ""); a.status != http.StatusGone {
				require.Equal(t, had, read(a), "offset %d", after)
			}
		}
	}
	{ // Messages of the AI SDK.
		body := b.chat("GET", path+"/ai/stream?message=m1", "").body
		require.Contains(t, body, fmt.Sprintf(`{"type":"data-gap","data":{"from":%d,"to":%d},"transient":true}`, first+1, first+s.deltas))
		require.Equal(t, message(t, whole), message(t, body), "the same message")
	}

	// A client that stayed connected has received all events.
	require.Equal(t, http.StatusOK, before.do("PATCH", path, `{"title":"later"}`).status)
	require.Equal(t, []string{fmt.Sprintf("%d title", s.newest+1)}, connected.brief(1))
}

// message returns the message that results from a stream of the AI SDK.
func message(t *testing.T, stream string) aisdk.Message {
	t.Helper()
	assembler := aisdk.NewAssembler()
	for line := range strings.SplitSeq(stream, "\n") {
		data, ok := strings.CutPrefix(line, "data: ")
		if !ok || data == "[DONE]" {
			continue
		}
		var c aisdk.Chunk
		require.NoError(t, json.Unmarshal([]byte(data), &c), data)
		assembler.Add([]aisdk.Chunk{c})
	}
	return assembler.Message
}
