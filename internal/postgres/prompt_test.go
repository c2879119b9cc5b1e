package postgres_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/event"
	"github.com/overwinter-dev/overwinter/internal/eventlog"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/resource"
	"github.com/overwinter-dev/overwinter/internal/run"
	"github.com/overwinter-dev/overwinter/internal/session"
	"github.com/overwinter-dev/overwinter/internal/usage"
)

func TestRepeatedSubmitIsOnePrompt(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p := session.Prompt{ID: "mine", SessionID: b.id, Content: "hi", Author: "ann"}
	var all sync.WaitGroup
	created := make(chan bool, 6)
	for range 6 {
		all.Go(func() {
			stored, position, fresh, err := b.PromptSubmit(b.ctx, p)
			if err == nil && position == 1 && stored.Ordinal == 1 {
				created <- fresh
			}
		})
	}
	all.Wait()
	close(created)
	fresh, answers := 0, 0
	for c := range created {
		answers++
		if c {
			fresh++
		}
	}
	require.Equal(t, 6, answers)
	require.Equal(t, 1, fresh)
	for _, other := range []session.Prompt{
		{ID: "mine", SessionID: b.id, Content: "other"},
		{ID: "mine", SessionID: b.id, Content: "hi", Mode: session.Steer},
		{ID: "mine", SessionID: b.id, Content: "hi", OnUnknown: session.Retry},
	} {
		_, _, _, err := b.PromptSubmit(b.ctx, other)
		requireCode(t, failure.PromptExists, err)
	}
	require.Equal(t, []string{"prompt", "queue", "title"}, b.types(t, 0))
}

func TestTurnOfPromptIsFound(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.running(t)
	first, second := b.submit(t, "1"), b.submit(t, "2")
	after, err := b.PromptAfter(b.ctx, b.id, first)
	require.NoError(t, err)
	require.Equal(t, b.position(t), after, "no run has had it: its turn begins after everything")
	before := b.position(t)
	runID := b.begin(t, first)
	pending, err := b.PromptsPending(b.ctx, b.id, 10)
	require.NoError(t, err)
	require.Equal(t, []string{first, second}, pending)
	_, err = b.RunEnd(b.ctx, run.Ending{RunID: runID, Outcome: session.OutcomeCompleted})
	require.NoError(t, err)
	after, err = b.PromptAfter(b.ctx, b.id, first)
	require.NoError(t, err)
	require.Equal(t, before, after, "in front of its turn_start")
	pending, err = b.PromptsPending(b.ctx, b.id, 10)
	require.NoError(t, err)
	require.Equal(t, []string{second}, pending)

	_, err = b.PromptAfter(b.ctx, b.id, "none")
	requireCode(t, failure.NoPrompt, err)
	_, err = b.PromptsPending(b.ctx, "ses_none", 1)
	requireCode(t, failure.NoSession, err)
}

func TestQueueIsReported(t *testing.T) {
	t.Parallel()
	b := setup(t)
	first, second := b.submit(t, "1"), b.submit(t, "2")
	events := b.events(t)
	var queue event.QueueData
	require.NoError(t, json.Unmarshal(events[len(events)-1].Data, &queue))
	require.Equal(t, []event.QueueItem{
		{PromptID: first, Ordinal: 1, Status: session.PromptQueued}, {PromptID: second, Ordinal: 2, Status: session.PromptQueued},
	}, queue.Items)
	withdrawn, err := b.PromptWithdraw(b.ctx, b.id, first)
	require.NoError(t, err)
	require.Equal(t, session.PromptCancelled, withdrawn.Status)
	require.Equal(t, session.ReasonWithdrawn, withdrawn.Reason)
	events = b.events(t)
	require.JSONEq(t, fmt.Sprintf(`{
		"changes":[{"change":"removed","promptId":%q,"ordinal":1,"status":"cancelled"}],
		"items":[{"promptId":%q,"ordinal":2,"status":"queued"}],"queued":1,"processing":0,"held":false
	}`, first, second), string(events[len(events)-1].Data))
	var reported event.PromptData
	require.NoError(t, json.Unmarshal(events[len(events)-2].Data, &reported))
	require.Equal(t, resource.Prompt(withdrawn).ID, reported.Prompt.ID)
	require.Equal(t, session.PromptCancelled, reported.Prompt.Status)

	_, err = b.PromptWithdraw(b.ctx, b.id, first)
	requireCode(t, failure.NotQueued, err)
	_, err = b.PromptWithdraw(b.ctx, b.id, "nothing")
	requireCode(t, failure.NoPrompt, err)
	_, err = b.PromptWithdraw(b.ctx, "ses_nobody", first)
	requireCode(t, failure.NoSession, err)
}

func TestOrdinalsAreUnique(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var all sync.WaitGroup
	errs := make(chan error, 40)
	for i := range 8 {
		all.Go(func() {
			for n := range 5 {
				_, _, _, err := b.PromptSubmit(b.ctx, session.Prompt{ID: fmt.Sprintf("p%d-%d", i, n), SessionID: b.id, Content: "x"})
				errs <- err
			}
		})
	}
	all.Wait()
	close(errs)
	for err := range errs {
		require.NoError(t, err)
	}
	var got []int64
	cursor := ""
	for {
		items, next, err := b.PromptList(b.ctx, b.id, 7, cursor)
		require.NoError(t, err)
		for _, p := range items {
			got = append(got, p.Ordinal)
		}
		if next == "" {
			break
		}
		cursor = next
	}
	require.Len(t, got, 40)
	for i, ordinal := range got {
		require.EqualValues(t, i+1, ordinal)
	}
	_, _, err := b.PromptList(b.ctx, "ses_nobody", 0, "")
	requireCode(t, failure.NoSession, err)
	_, err = b.PromptGet(b.ctx, b.id, "nothing")
	requireCode(t, failure.NoPrompt, err)
	_, err = b.PromptGet(b.ctx, "ses_nobody", "nothing")
	requireCode(t, failure.NoSession, err)
}

func TestQueueIsFullAtItsLimit(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.sql(t, `INSERT INTO prompts (session_id, id, ordinal, status, content, mode, on_unknown, author, created_at)
		SELECT id, 'p' || n, n, 'queued', '', 'followup', 'hold', '', now() FROM sessions, generate_series(1, 999) n`)
	b.sql(t, "UPDATE sessions SET last_ordinal = 999")
	_, position, _, err := b.PromptSubmit(b.ctx, session.Prompt{ID: "last", SessionID: b.id})
	require.NoError(t, err)
	require.EqualValues(t, session.MaxQueued, position)
	_, _, _, err = b.PromptSubmit(b.ctx, session.Prompt{ID: "too many", SessionID: b.id})
	requireCode(t, failure.QueueFull, err)
	n, err := b.PromptsCancel(b.ctx, b.id, "cleared")
	require.NoError(t, err)
	require.EqualValues(t, session.MaxQueued, n)
}

func TestPromptsOfSessionInErrorAreBlocked(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.submit(t, "accepted")
	reasons := func() (told []string) {
		t.Helper()
		for _, e := range b.events(t) {
			var data event.PromptData
			if e.Type != event.TypePrompt {
				continue
			}
			require.NoError(t, json.Unmarshal(e.Data, &data))
			require.Equal(t, session.PromptQueued, data.Prompt.Status)
			told = append(told, data.Prompt.BlockedReason)
		}
		return told
	}
	stored := func() []string {
		t.Helper()
		list, _, err := b.PromptList(b.ctx, b.id, 10, "")
		require.NoError(t, err)
		require.Len(t, list, 1)
		one, err := b.PromptGet(b.ctx, b.id, list[0].ID)
		require.NoError(t, err)
		again, _, created, err := b.PromptSubmit(b.ctx, session.Prompt{ID: one.ID, SessionID: b.id, Content: one.Content})
		require.NoError(t, err)
		require.False(t, created)
		for _, p := range []session.Prompt{list[0], one, again} {
			require.Equal(t, session.PromptQueued, p.Status)
		}
		return []string{list[0].BlockedReason, one.BlockedReason, again.BlockedReason}
	}
	require.Equal(t, []string{"", "", ""}, stored())

	b.transit(t, session.EventFail, "the setup script failed")
	_, _, _, err := b.PromptSubmit(b.ctx, session.Prompt{ID: "late", SessionID: b.id, Content: "late"})
	requireCode(t, failure.InError, err)
	require.ErrorContains(t, err, "the session is in error: the setup script failed; POST recover to try again")
	require.Equal(t, []string{"the setup script failed", "the setup script failed", "the setup script failed"}, stored())

	b.transit(t, session.EventRecover, session.ReasonRequested)
	require.Equal(t, []string{"", "", ""}, stored())
	require.Equal(t, []string{"", "the setup script failed", ""}, reasons(), "when it came, when it was blocked and when not any more")
	b.submit(t, "later")
}

func TestUnstorablePromptIsRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, content := range []string{"a\x00b", "\xff"} {
		_, _, _, err := b.PromptSubmit(b.ctx, session.Prompt{ID: "p", SessionID: b.id, Content: content})
		requireCode(t, failure.Invalid, err)
	}
	_, _, _, err := b.PromptSubmit(b.ctx, session.Prompt{ID: "p", SessionID: b.id, Mode: "shout"})
	requireCode(t, failure.Invalid, err)
}

func TestOnlyLostPromptIsRequeued(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.running(t)
	p := b.submit(t, "1")
	b.submit(t, "2")
	require.NoError(t, b.PromptRequeue(b.ctx, b.id, p), "it waits already")
	runID := b.begin(t, p)
	require.NoError(t, b.PromptRequeue(b.ctx, b.id, p), "it is being processed")
	_, err := b.RunEnd(b.ctx, run.Ending{RunID: runID, Outcome: session.OutcomeUnknown, Reason: session.ReasonSandboxLost})
	require.NoError(t, err)
	require.NoError(t, b.PromptRequeue(b.ctx, b.id, p))
	got, err := b.PromptGet(b.ctx, b.id, p)
	require.NoError(t, err)
	require.Equal(t, session.PromptQueued, got.Status)
	require.EqualValues(t, 1, got.Ordinal)
	require.Empty(t, got.RunID)
	require.True(t, got.StartedAt.IsZero())
	require.True(t, got.EndedAt.IsZero())
	runID = b.begin(t, p)
	_, err = b.RunEnd(b.ctx, run.Ending{RunID: runID, Token: "t1", Outcome: session.OutcomeCompleted})
	require.NoError(t, err)
	requireCode(t, failure.IllegalState, b.PromptRequeue(b.ctx, b.id, p))
	requireCode(t, failure.NoPrompt, b.PromptRequeue(b.ctx, b.id, "nothing"))
}

func TestCancelEndsRunningPromptToo(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.running(t)
	p := b.submit(t, "1")
	b.submit(t, "2")
	run := b.begin(t, p)
	before := b.position(t)
	n, err := b.PromptsCancel(b.ctx, b.id, "cl\x00eared")
	require.NoError(t, err)
	require.EqualValues(t, 2, n)
	require.Equal(t, []string{"turn_end", "prompt", "queue", "prompt", "queue"}, b.types(t, before))
	got, err := b.PromptGet(b.ctx, b.id, p)
	require.NoError(t, err)
	require.Equal(t, "cl\uFFFDeared", got.Reason, "a reason is never a reason to fail")
	require.ErrorIs(t, b.appendOne(t, eventlog.Append{SessionID: b.id, RunID: run, Generation: 1, Token: "t1"}), eventlog.ErrFenced)
}

func TestErrorsHideDriverDetails(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, _, _, err := b.PromptSubmit(b.ctx, session.Prompt{ID: "p", SessionID: b.id, Content: "a\x00b"})
	var f *failure.Error
	require.ErrorAs(t, err, &f)
	require.NotContains(t, f.Message, "SQLSTATE")
	require.ErrorContains(t, f.Err, "SQLSTATE", "the log has it all")
}

// TestFullQueueOfLargePromptsIsCancelled cancels prompts whose content would add up to hundreds of
// megabytes of events, in more than one transaction.
func TestFullQueueOfLargePromptsIsCancelled(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const prompts = 450
	content := strings.Repeat("<", 256<<10)
	for i := range prompts {
		_, _, _, err := b.PromptSubmit(b.ctx, session.Prompt{ID: fmt.Sprintf("p%d", i), SessionID: b.id, Content: content})
		require.NoError(t, err)
	}
	before := b.events(t)
	var submitted int
	for _, e := range before {
		submitted += len(e.Data)
	}
	require.Less(t, submitted, prompts*(300<<10), "content is stored unchanged, without escapes for HTML")

	cancelled, err := b.PromptsCancel(b.ctx, b.id, session.ReasonSessionTerminated)
	require.NoError(t, err)
	require.EqualValues(t, prompts, cancelled)
	all := b.events(t)
	events := all[len(before):]
	total, reported := 0, 0
	var queue event.Queue
	for _, e := range events {
		total += len(e.Data)
		if e.Type == event.TypePrompt {
			reported++
			require.NotContains(t, string(e.Data), `"content"`)
		}
	}
	require.Equal(t, prompts, reported)
	require.Less(t, total, 1<<20, "what cancelling writes does not depend on the content")
	for _, e := range all {
		if e.Type == event.TypeQueue {
			var data event.QueueData
			require.NoError(t, json.Unmarshal(e.Data, &data))
			require.LessOrEqual(t, len(data.Changes), 200)
			queue.Apply(data)
		}
	}
	require.Empty(t, queue.Items())
	again, err := b.PromptsCancel(b.ctx, b.id, session.ReasonSessionTerminated)
	require.NoError(t, err)
	require.Zero(t, again)
	more, err := b.EventsPage(b.ctx, b.id, int64(len(all)), 100_000)
	require.NoError(t, err)
	require.Empty(t, more, "nothing is reported twice")
}

// TestReaderRebuildsQueueFromItsChanges changes a queue at random. A reader of all queue events
// reconstructs the queue, and the size of each event does not depend on the length of the queue.
func TestReaderRebuildsQueueFromItsChanges(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var queue event.Queue
	read := 0
	check := func() {
		var want []event.QueueItem
		for cursor := ""; ; {
			page, next, err := b.PromptList(b.ctx, b.id, 200, cursor)
			require.NoError(t, err)
			for _, p := range page {
				if !p.Status.Final() {
					want = append(want, event.QueueItem{PromptID: p.ID, Ordinal: p.Ordinal, Status: p.Status})
				}
			}
			if cursor = next; next == "" {
				break
			}
		}
		events := b.events(t)
		for _, e := range events[read:] {
			if e.Type != event.TypeQueue {
				continue
			}
			require.Less(t, len(e.Data), 4<<10)
			var data event.QueueData
			require.NoError(t, json.Unmarshal(e.Data, &data))
			require.LessOrEqual(t, len(data.Items), event.MaxQueueItems)
			queue.Apply(data)
		}
		read = len(events)
		require.Equal(t, want, queue.Items())
		var last event.QueueData
		for _, e := range slices.Backward(events) {
			if e.Type == event.TypeQueue {
				require.NoError(t, json.Unmarshal(e.Data, &last))
				break
			}
		}
		require.EqualValues(t, len(want), last.Queued+last.Processing)
		require.Equal(t, want[:min(len(want), event.MaxQueueItems)], last.Items)
	}
	var ids []string
	for range 60 {
		ids = append(ids, b.submit(t, "x"))
	}
	check()
	for _, i := range []int{59, 0, 30, 1} {
		_, err := b.PromptWithdraw(b.ctx, b.id, ids[i])
		require.NoError(t, err)
	}
	check()
}

// TestPromptHasUsageOfItsLastRun checks that every read of the prompt returns the usage once the
// run has ended.
func TestPromptHasUsageOfItsLastRun(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.running(t)
	used := session.PromptUsage{Usage: usage.Usage{InputTokens: 10, OutputTokens: 2, ToolCalls: 1, CostUSD: 0.5}, Model: "m1"}
	first, second := b.submit(t, "first"), b.submit(t, "second")
	runID := b.begin(t, first)
	read := func(id string) *session.PromptUsage {
		t.Helper()
		p, err := b.PromptGet(b.ctx, b.id, id)
		require.NoError(t, err)
		list, _, err := b.PromptList(b.ctx, b.id, 10, "")
		require.NoError(t, err)
		require.Equal(t, p.Usage, list[p.Ordinal-1].Usage)
		return p.Usage
	}
	require.Nil(t, read(first), "its run is in progress")
	_, err := b.RunEnd(b.ctx, run.Ending{RunID: runID, Outcome: session.OutcomeCompleted, Usage: used.Usage, Model: "m1"})
	require.NoError(t, err)
	require.Equal(t, &used, read(first))
	require.Nil(t, read(second))
	_, err = b.RunEnd(b.ctx, run.Ending{RunID: b.begin(t, second), Outcome: session.OutcomeCompleted, Usage: usage.Usage{CostUnknown: true}})
	require.NoError(t, err)
	require.Equal(t, &session.PromptUsage{Usage: usage.Usage{CostUnknown: true}}, read(second), "unknown is not zero")
}

// TestReleaseBeforeReadsSessionsOfUnknownCost checks the view for a release that requires a numeric
// cost.
func TestReleaseBeforeReadsSessionsOfUnknownCost(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.running(t)
	_, err := b.RunEnd(b.ctx, run.Ending{RunID: b.begin(t, b.submit(t, "1")), Outcome: session.OutcomeCompleted, Usage: usage.Usage{CostUnknown: true}})
	require.NoError(t, err)
	s, err := b.SessionGet(b.ctx, b.id)
	require.NoError(t, err)
	require.Nil(t, s.Metrics.CostUSD)
	cost := -1.0
	b.row(t, &cost, "SELECT cost_usd FROM session_views WHERE id = $1", b.id)
	require.Zero(t, cost)
}

// TestPromptIsStoredIfNeedsAreMet checks that a prompt whose needs are not met changes nothing, unless it
// is already stored.
func TestPromptIsStoredIfNeedsAreMet(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, _, err := b.SecretPut(b.ctx, "B", []byte("b"))
	require.NoError(t, err)
	agent, present, met := "", []string{}, false
	needs := session.Needs{Names: []string{"A", "B"}, Met: func(agentName string, names []string) bool {
		agent, present = agentName, names
		return met
	}}
	prompt := session.Prompt{ID: session.NewID(session.PromptPrefix), SessionID: b.id, Content: "hello"}
	before := b.position(t)
	_, _, _, err = b.PromptSubmitIf(b.ctx, prompt, needs)
	require.ErrorIs(t, err, session.ErrUnmet)
	require.Equal(t, []string{"demo", "B"}, append([]string{agent}, present...))
	require.Equal(t, before, b.position(t))
	_, err = b.PromptGet(b.ctx, b.id, prompt.ID)
	require.Equal(t, failure.NoPrompt, failure.CodeOf(err))

	met = true
	_, position, created, err := b.PromptSubmitIf(b.ctx, prompt, needs)
	require.NoError(t, err)
	require.True(t, created)
	require.EqualValues(t, 1, position)
	met = false
	_, _, created, err = b.PromptSubmitIf(b.ctx, prompt, needs)
	require.NoError(t, err, "it is stored already")
	require.False(t, created)
	prompt.SessionID = session.NewID(session.SessionPrefix)
	_, _, _, err = b.PromptSubmitIf(b.ctx, prompt, needs)
	require.Equal(t, failure.NoSession, failure.CodeOf(err))
}
