package postgres_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/eventlog"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/postgres/postgrestest"
	"github.com/overwinter-dev/overwinter/internal/run"
	"github.com/overwinter-dev/overwinter/internal/session"
)

func TestFramesAreWrittenOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.running(t)
	run := b.begin(t, b.submit(t, "1"))
	before := b.position(t)
	frames := func(from, to int64) eventlog.Append {
		a := eventlog.Append{SessionID: b.id, RunID: run, Generation: 1, Token: "t1", LastFrame: to, State: fmt.Appendf(nil, "%d", to)}
		for f := from; f <= to; f++ {
			a.Events = append(a.Events, draft("error", f, 0, `{}`), draft("error", f, 1, `{}`))
		}
		return a
	}
	require.NoError(t, b.appendOne(t, frames(0, 2)))
	require.NoError(t, b.appendOne(t, frames(0, 2)))
	require.NoError(t, b.appendOne(t, frames(1, 4)))
	require.NoError(t, b.appendOne(t, frames(0, 1)), "a late append changes nothing")
	require.Len(t, b.types(t, before), 10)
	r, err := b.RunGet(b.ctx, run)
	require.NoError(t, err)
	require.EqualValues(t, 4, r.LastFrame)
	require.Equal(t, "4", string(r.Translator))
	verdicts, err := b.EventsAppend(b.ctx, []eventlog.Append{frames(5, 5), frames(5, 6), frames(7, 7)})
	require.NoError(t, err)
	require.Equal(t, []error{nil, nil, nil}, verdicts)
	require.Len(t, b.types(t, before), 16)
}

func TestRefusedAppendDoesNotAffectOthers(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.running(t)
	run := b.begin(t, b.submit(t, "1"))
	other := b.session(t)
	before := b.position(t)
	good := eventlog.Append{SessionID: b.id, RunID: run, Generation: 1, Token: "t1", LastFrame: 0, Events: []eventlog.Draft{draft("error", 0, 0, `{}`)}}
	change := func(do func(*eventlog.Append)) eventlog.Append {
		a := good
		a.LastFrame = 9
		do(&a)
		return a
	}
	verdicts, err := b.EventsAppend(b.ctx, []eventlog.Append{
		change(func(a *eventlog.Append) { a.Token = "t0" }),
		change(func(a *eventlog.Append) { a.Token = "" }),
		change(func(a *eventlog.Append) { a.Generation = 0 }),
		change(func(a *eventlog.Append) { a.RunID = "run_nobody" }),
		change(func(a *eventlog.Append) { a.SessionID = other }),
		change(func(a *eventlog.Append) { a.SessionID = "ses_nobody" }),
		change(func(a *eventlog.Append) { a.Events = []eventlog.Draft{draft("error", 0, 0, `{"cut`)} }),
		good,
	})
	require.NoError(t, err)
	for i := range 3 {
		require.ErrorIs(t, verdicts[i], eventlog.ErrFenced)
	}
	requireCode(t, failure.NoRun, verdicts[3])
	requireCode(t, failure.NoRun, verdicts[4])
	requireCode(t, failure.NoSession, verdicts[5])
	requireCode(t, failure.Invalid, verdicts[6])
	require.NoError(t, verdicts[7])
	require.Equal(t, []string{"error"}, b.types(t, before))
	r, err := b.RunGet(b.ctx, run)
	require.NoError(t, err)
	require.Zero(t, r.LastFrame)
}

func TestArbitraryAgentOutputIsStored(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.running(t)
	run := b.begin(t, b.submit(t, "1"))
	data := []string{
		`{"z": 1, "a":  "\u0000", "z": 2}`, `{"message":"\ud800"}`, "{\"message\":\"caf\xc3\xa9\"}", "{\"message\":\"broken \xff\"}",
	}
	a := eventlog.Append{SessionID: b.id, RunID: run, Generation: 1, Token: "t1"}
	for i, d := range data {
		a.Events = append(a.Events, draft("error", 0, i, d))
	}
	a.Events = append(a.Events, draft("block_start", 0, 9, `{"block":{"id":"a\u0000b","type":"tool_result","status":"success","createdAt":"2026-01-01T00:00:00Z","toolUseId":"t","output":"x\u0000y","isError":false}}`))
	a.Events[0].ConversationID = "a\x00\xff"
	require.NoError(t, b.appendOne(t, a))
	events := b.events(t)
	events = events[len(events)-5:]
	data[3] = "{\"message\":\"broken \uFFFD\"}"
	for i, d := range data {
		require.Equal(t, d, string(events[i].Data))
	}
	c, err := b.Conversation(b.ctx, b.id)
	require.NoError(t, err)
	require.Equal(t, events[len(events)-1].Seq, c.Seq, "the position that it is the state at")
	require.Equal(t, "a\x00b", c.Threads[0].Blocks[0].ID)
	require.JSONEq(t, `"x\u0000y"`, string(c.Threads[0].Blocks[0].Output))
}

// TestActivityIsWrittenAtBothEndsOfTurn checks that the activity is also written with prompts, but
// not with events: they are frequent, and each write updates the index for lists by activity.
func TestActivityIsWrittenAtBothEndsOfTurn(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.running(t)
	// active reports whether do updates the session's activity.
	active := func(do func()) bool {
		t.Helper()
		b.sql(t, "UPDATE sessions SET last_activity_at = now() - interval '1 hour'")
		do()
		s, err := b.SessionGet(b.ctx, b.id)
		require.NoError(t, err)
		return time.Since(s.LastActivity) < 30*time.Minute
	}
	var prompt, runID string
	require.True(t, active(func() { prompt = b.submit(t, "1") }))
	require.True(t, active(func() { runID = b.begin(t, prompt) }))
	a := eventlog.Append{SessionID: b.id, RunID: runID, Generation: 1, Token: "t1", Events: []eventlog.Draft{draft("error", 0, 0, `{}`)}}
	require.False(t, active(func() { require.NoError(t, b.appendOne(t, a)) }))
	require.True(t, active(func() {
		_, err := b.RunEnd(b.ctx, run.Ending{RunID: runID, Token: "t1", Outcome: session.OutcomeCompleted})
		require.NoError(t, err)
	}))
}

// TestAppendsUpdateInPlace checks that no index contains the columns of the session and the run
// that an append changes.
func TestAppendsUpdateInPlace(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.running(t)
	run := b.begin(t, b.submit(t, "1"))
	b.sql(t, "VACUUM ANALYZE")
	updates := func() map[string][2]int64 {
		counts := map[string][2]int64{}
		for _, table := range []string{"sessions", "runs", "session_activity"} {
			var all, inPlace int64
			b.row(t, &all, "SELECT n_tup_upd FROM pg_stat_user_tables WHERE relname = $1", table)
			b.row(t, &inPlace, "SELECT n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = $1", table)
			counts[table] = [2]int64{all, inPlace}
		}
		return counts
	}
	b.Close() // a server process reports its statistics when it ends
	b.DB = postgrestest.Open(t, b.url)
	var before, after map[string][2]int64
	require.Eventually(t, func() bool { before = updates(); return before["sessions"][0] >= 3 }, waitLimit, 20*time.Millisecond)
	const appends = 200
	for i := range appends {
		require.NoError(t, b.appendOne(t, eventlog.Append{
			SessionID: b.id, RunID: run, Generation: 1, Token: "t1", LastFrame: int64(i), State: []byte(fmt.Sprint("state ", i)),
			Events: []eventlog.Draft{draft("text_delta", int64(i), 0, `{"blockId":"b","delta":"x"}`)},
		}))
	}
	b.Close()
	b.DB = postgrestest.Open(t, b.url)
	require.Eventually(t, func() bool {
		after = updates()
		return after["sessions"][0] >= before["sessions"][0]+appends && after["runs"][0] >= before["runs"][0]+appends
	}, waitLimit, 20*time.Millisecond)
	for _, table := range []string{"sessions", "runs"} {
		all, inPlace := after[table][0]-before[table][0], after[table][1]-before[table][1]
		require.EqualValues(t, appends, all, table)
		// An update cannot stay on a page without room for another version, if a snapshot still
		// needs the old ones.
		require.GreaterOrEqual(t, inPlace, all*8/10, table)
	}
	require.Equal(t, before["session_activity"], after["session_activity"])
}

func TestTitleOfPersonReplacesTitleOfAgent(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.running(t)
	run := b.begin(t, b.submit(t, "1"))
	title := func(frame int64, words string) string {
		require.NoError(t, b.appendOne(t, eventlog.Append{
			SessionID: b.id, RunID: run, Generation: 1, Token: "t1", LastFrame: frame,
			Events: []eventlog.Draft{draft("title", frame, 0, fmt.Sprintf(`{"title":%q}`, words))},
		}))
		s, err := b.SessionGet(b.ctx, b.id)
		require.NoError(t, err)
		return s.Title
	}
	require.Equal(t, "first", title(0, "first"))
	require.Equal(t, "second", title(1, "second"))
	_, err := b.SessionPatch(b.ctx, b.id, session.Patch{Title: new("mine")})
	require.NoError(t, err)
	require.Equal(t, "mine", title(2, "third"))
}

// TestStoredBlocksMatchFoldOfStream compares the stored blocks, after each batch and across ends of
// runs, with the fold of the whole stream.
func TestStoredBlocksMatchFoldOfStream(t *testing.T) {
	t.Parallel()
	b := setup(t)
	rapid.Check(t, func(rt *rapid.T) {
		b := &harness{DB: b.DB, ctx: b.ctx}
		b.id = b.session(t)
		b.running(t)
		var folder conversation.Folder
		frame, runID := int64(0), b.begin(t, b.submit(t, "x"))
		for range rapid.IntRange(1, 8).Draw(rt, "batches") {
			a := eventlog.Append{SessionID: b.id, RunID: runID, Generation: 1, Token: "t1"}
			for range rapid.IntRange(1, 6).Draw(rt, "events") {
				d := drawEvent(rt)
				d.Frame = frame
				require.NoError(rt, folder.Apply(conversation.EventType(d.Type), d.ConversationID, d.Data))
				a.Events = append(a.Events, d)
				a.LastFrame = frame
				frame++
			}
			if rapid.Bool().Draw(rt, "without waiting for the lock") {
				verdicts, err := b.EventsTryAppend(b.ctx, []eventlog.Append{a})
				require.NoError(rt, err)
				require.NoError(rt, verdicts[0])
			} else {
				require.NoError(rt, b.appendOne(t, a))
			}
			if rapid.IntRange(0, 4).Draw(rt, "run ends") == 0 {
				_, err := b.RunEnd(b.ctx, run.Ending{RunID: runID, Token: "t1", Outcome: session.OutcomeCompleted})
				require.NoError(rt, err)
				frame, runID = 0, b.begin(t, b.submit(t, "x"))
			}
			got, err := b.Conversation(b.ctx, b.id)
			require.NoError(rt, err)
			require.Equal(rt, inJSON(rt, folder.Conversation()), inJSON(rt, got))
		}
	})
}

// inJSON omits threads that never had a block, since the store has no row for them.
func inJSON(t *rapid.T, c conversation.Conversation) string {
	kept := c.Threads[:1]
	for _, thread := range c.Threads[1:] {
		if len(thread.Blocks) > 0 {
			kept = append(kept, thread)
		}
	}
	data, err := json.Marshal(conversation.Conversation{Threads: kept})
	require.NoError(t, err)
	return string(data)
}

func drawEvent(t *rapid.T) eventlog.Draft {
	d := eventlog.Draft{At: time.Now(), ConversationID: rapid.SampledFrom([]string{"main", "sub1", "sub2"}).Draw(t, "conversation")}
	id := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "block")
	block := conversation.Block{ID: id, Type: conversation.AssistantText, Status: conversation.Streaming, CreatedAt: time.Unix(0, 0).UTC()}
	var kind conversation.EventType
	var data any
	switch rapid.IntRange(0, 9).Draw(t, "kind") {
	case 0, 1:
		kind, data = conversation.EventBlockStart, conversation.BlockStart{Block: block}
	case 2:
		block.Type, block.Name = conversation.ToolUse, "bash"
		kind, data = conversation.EventBlockStart, conversation.BlockStart{Block: block}
	case 3:
		block.Status, block.Content = conversation.Complete, "whole"
		kind, data = conversation.EventBlockComplete, conversation.BlockComplete{Block: block}
	case 4:
		kind, data = conversation.EventBlockUpdate, conversation.BlockUpdate{BlockID: id, Updates: conversation.Updates{Status: conversation.Aborted}}
	case 5:
		kind, data = conversation.EventBlockRemoved, conversation.BlockRemoved{BlockID: id}
	default:
		kind, data = conversation.EventTextDelta, conversation.TextDelta{BlockID: id, Delta: rapid.SampledFrom([]string{"x", "yz", " "}).Draw(t, "delta")}
	}
	raw, err := json.Marshal(data)
	require.NoError(t, err)
	d.Type, d.Data = string(kind), raw
	return d
}

func TestMalformedEventDataIsKeptAndChangesNoBlock(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.running(t)
	run := b.begin(t, b.submit(t, "1"))
	before := b.position(t)
	require.NoError(t, b.appendOne(t, eventlog.Append{SessionID: b.id, RunID: run, Generation: 1, Token: "t1", Events: []eventlog.Draft{
		draft("block_start", 0, 0, `{"block":{"id":"a","type":"assistant_text","status":"streaming","createdAt":"2026-01-01T00:00:00Z"}}`),
		draft("block_start", 0, 1, `[]`),
		draft("block_start", 0, 2, `{}`),
		draft("text_delta", 0, 3, `{"blockId":"a","delta":7}`),
		draft("block_update", 0, 4, `{"blockId":"a","updates":3}`),
		draft("text_delta", 0, 5, `{"blockId":"a","delta":"fine"}`),
	}}))
	require.Len(t, b.types(t, before), 6)
	c, err := b.Conversation(b.ctx, b.id)
	require.NoError(t, err)
	require.Len(t, c.Threads[0].Blocks, 1)
	require.Equal(t, "fine", c.Threads[0].Blocks[0].Content)
	_, err = b.Conversation(b.ctx, "ses_nobody")
	requireCode(t, failure.NoSession, err)
}

func TestPruningKeepsTextOfOpenBlocks(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.running(t)
	run := b.begin(t, b.submit(t, "1"))
	add := func(frame int64, kind, data string) {
		require.NoError(t, b.appendOne(t, eventlog.Append{
			SessionID: b.id, RunID: run, Generation: 1, Token: "t1", LastFrame: frame,
			Events: []eventlog.Draft{draft(kind, frame, 0, data)},
		}))
	}
	add(0, "block_start", `{"block":{"id":"a","type":"assistant_text","status":"streaming","createdAt":"2026-01-01T00:00:00Z"}}`)
	add(1, "text_delta", `{"blockId":"a","delta":"one "}`)
	add(2, "text_delta", `{"blockId":"a","delta":"two "}`)
	newest := b.position(t)
	require.NoError(t, b.EventsPrune(b.ctx, b.id, newest+100), "the newest stays")
	add(3, "text_delta", `{"blockId":"a","delta":"three"}`)
	c, err := b.Conversation(b.ctx, b.id)
	require.NoError(t, err)
	require.Equal(t, "one two three", c.Threads[0].Blocks[0].Content)
	page, err := b.EventsPage(b.ctx, b.id, newest-1, 10)
	require.NoError(t, err)
	require.Len(t, page, 2)
}
