package postgres_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/eventlog"
	"github.com/overwinter-dev/overwinter/internal/postgres"
	"github.com/overwinter-dev/overwinter/internal/run"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// utter appends the events of texts: "a(" starts block a, "a+" is a delta of it, "a=" completes it,
// "a-" removes it, and "." is an event that concerns no block.
func (b *harness) utter(t *testing.T, runID string, frame int64, words ...string) {
	t.Helper()
	a := eventlog.Append{SessionID: b.id, RunID: runID, Generation: 1, Token: "t1", LastFrame: frame}
	for n, w := range words {
		kind, data := "title", `{"title":"t"}`
		if id := w[:1]; id != "." {
			block := fmt.Sprintf(`{"block":{"id":%q,"type":"assistant_text","status":%%q,"content":%%q}}`, id)
			switch w[1:] {
			case "(":
				kind, data = "block_start", fmt.Sprintf(block, "streaming", "")
			case "+":
				kind, data = "text_delta", fmt.Sprintf(`{"blockId":%q,"delta":"%d \u0000 "}`, id, n)
			case "=":
				kind, data = "block_complete", fmt.Sprintf(block, "complete", "whole")
			case "-":
				kind, data = "block_removed", fmt.Sprintf(`{"blockId":%q}`, id)
			}
		}
		a.Events = append(a.Events, draft(kind, frame, n, data))
	}
	require.NoError(t, b.appendOne(t, a))
}

// kept returns the positions of events in the log, relative to the first event of utter.
func (b *harness) kept(t *testing.T, after int64) (seqs []int64) {
	t.Helper()
	page, err := b.EventsPage(b.ctx, b.id, after, 1000)
	require.NoError(t, err)
	for _, e := range page {
		seqs = append(seqs, e.Seq-after)
	}
	return seqs
}

func (b *harness) age(t *testing.T) {
	t.Helper()
	b.sql(t, "UPDATE event_log SET at = at - interval '2 hours'")
}

func TestDeltasOfCompleteBlocksAreDropped(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.running(t)
	runID := b.begin(t, b.submit(t, "hello"))
	begin := b.position(t)
	b.utter(t, runID, 1,
		"a(", "a+", "a+", ".", "a+", "a=", // 1 to 6
		"a+",       // 7: later text of a complete block
		"b(", "b+", // 8, 9: never completed
		"c(", "c+", "c=", "c-", // 10 to 13: removed
		"d(", "d+", "d(", "d+", "d=", // 14 to 18: started again
		"e+", "x+", // 19, 20: for no block
		"e(", "f(", "f+", "e+", "e=", // 21 to 25
	)
	want, _, err := b.ConversationPage(b.ctx, b.id, 0, "")
	require.NoError(t, err)
	_, n, err := b.EventsCompact(b.ctx, time.Hour, 0, 10, 1000)
	require.NoError(t, err)
	require.Zero(t, n, "all of it is younger")
	require.EqualValues(t, 0, query[int64](b.ctx, t, b.url, "SELECT compact_seq FROM sessions WHERE id = $1", b.id))

	// The end of the run stores the text of open blocks: no event contains it completely.
	_, err = b.RunEnd(b.ctx, run.Ending{RunID: runID, Token: "t1", Outcome: session.OutcomeCompleted})
	require.NoError(t, err)
	b.age(t)
	newest := b.position(t)
	next, n, err := b.EventsCompact(b.ctx, time.Hour, 0, 10, 1000)
	require.NoError(t, err)
	require.Zero(t, next)
	// 19 precedes the block, whose text is in 25. No event contains the complete text with the
	// delta after a complete block (7).
	require.Equal(t, []int64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 13, 14, 16, 18, 20, 21, 22, 23, 25}, b.kept(t, begin)[:20])
	require.EqualValues(t, 5, n)
	dropped, err := b.EventsDropped(b.ctx, b.id)
	require.NoError(t, err)
	require.Equal(t, begin+24, dropped)
	require.Equal(t, newest, query[int64](b.ctx, t, b.url, "SELECT compact_seq FROM sessions WHERE id = $1", b.id))
	got, _, err := b.ConversationPage(b.ctx, b.id, 0, "")
	require.NoError(t, err)
	require.Equal(t, want.Threads, got.Threads)

	_, n, err = b.EventsCompact(b.ctx, time.Hour, 0, 10, 1000)
	require.NoError(t, err)
	require.Zero(t, n)
	_, err = b.EventsDropped(b.ctx, "ses_nobody")
	require.Error(t, err)
}

func TestCompactionIsBoundedAndSkipsLockedSessions(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var ids []string
	for range 3 {
		b.id = b.session(t)
		b.running(t)
		run := b.begin(t, b.submit(t, "hello"))
		words := []string{"a("}
		for range 50 {
			words = append(words, "a+")
		}
		b.utter(t, run, 1, append(words, "a=", "a+")...)
		ids = append(ids, b.id)
	}
	b.age(t)
	release := b.lock(t, ids[0])
	hurried := b.open(t, postgres.Options{LockTimeout: time.Hour, CallTimeout: time.Hour, BulkTimeout: time.Hour})
	var after, dropped int64
	calls := 0
	for ; calls == 0 || after != 0; calls++ {
		var n int64
		var err error
		after, n, err = hurried.EventsCompact(b.ctx, time.Hour, after, 2, 1_000_000)
		require.NoError(t, err)
		dropped += n
	}
	require.Greater(t, calls, 1, "each looks at a bounded number of sessions")
	require.EqualValues(t, 100, dropped)
	release()
	next, n, err := hurried.EventsCompact(b.ctx, time.Hour, 0, 10, 20)
	require.NoError(t, err)
	require.EqualValues(t, 50, n)
	require.Less(t, next, query[int64](b.ctx, t, b.url, "SELECT no FROM sessions WHERE id = $1", ids[0]), "the budget is used up: it continues with the same session")
}

// TestRetentionAndPurgeOfCompactedLog checks that both delete what compaction has left, and that
// errors name the beginning of the log.
func TestRetentionAndPurgeOfCompactedLog(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.running(t)
	runID := b.begin(t, b.submit(t, "hello"))
	begin := b.position(t)
	b.utter(t, runID, 1, "a(", "a+", "a+", "a+", "a=", "b(", "b+", "b=")
	_, err := b.RunEnd(b.ctx, run.Ending{RunID: runID, Token: "t1", Outcome: session.OutcomeCompleted})
	require.NoError(t, err)
	b.age(t)
	_, n, err := b.EventsCompact(b.ctx, time.Hour, 0, 10, 1000)
	require.NoError(t, err)
	require.EqualValues(t, 4, n)

	// The log begins within the deleted events.
	require.NoError(t, b.EventsPrune(b.ctx, b.id, begin+3))
	var gone *eventlog.PositionGoneError
	_, err = b.EventsPage(b.ctx, b.id, begin+2, 10)
	require.ErrorAs(t, err, &gone)
	require.Equal(t, begin+4, gone.First)
	page, err := b.EventsPage(b.ctx, b.id, begin+3, 10)
	require.NoError(t, err)
	require.Equal(t, begin+5, page[0].Seq)

	b.transit(t, session.EventStop, "")
	require.NoError(t, b.PurgeContent(b.ctx, b.id))
	require.Zero(t, query[int](b.ctx, t, b.url, "SELECT count(*)::int FROM event_log"))
	_, n, err = b.EventsCompact(b.ctx, time.Hour, 0, 10, 1000)
	require.NoError(t, err)
	require.Zero(t, n)
}
