package postgres_test

import (
	"encoding/json"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/eventlog"
	"github.com/overwinter-dev/overwinter/internal/session"
	"github.com/overwinter-dev/overwinter/internal/wire"
)

func TestASubmitTwiceIsOnePrompt(t *testing.T) {
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
		requireCode(t, session.CodePromptExists, err)
	}
	require.Equal(t, []string{"prompt", "queue"}, b.types(t, 0))
}

func TestTheQueueIsTold(t *testing.T) {
	t.Parallel()
	b := setup(t)
	first, second := b.submit(t, "1"), b.submit(t, "2")
	events := b.events(t)
	var queue wire.QueueData
	require.NoError(t, json.Unmarshal(events[len(events)-1].Data, &queue))
	require.Equal(t, []wire.QueueItem{
		{PromptID: first, Ordinal: 1, Status: session.PromptQueued}, {PromptID: second, Ordinal: 2, Status: session.PromptQueued},
	}, queue.Items)
	withdrawn, err := b.PromptWithdraw(b.ctx, b.id, first)
	require.NoError(t, err)
	require.Equal(t, session.PromptCancelled, withdrawn.Status)
	require.Equal(t, session.ReasonWithdrawn, withdrawn.Reason)
	events = b.events(t)
	require.JSONEq(t, fmt.Sprintf(`{"items":[{"promptId":%q,"ordinal":2,"status":"queued"}]}`, second), string(events[len(events)-1].Data))
	var told wire.PromptData
	require.NoError(t, json.Unmarshal(events[len(events)-2].Data, &told))
	require.Equal(t, wire.Prompt(withdrawn).ID, told.Prompt.ID)
	require.Equal(t, session.PromptCancelled, told.Prompt.Status)

	_, err = b.PromptWithdraw(b.ctx, b.id, first)
	requireCode(t, session.CodeIllegalState, err)
	_, err = b.PromptWithdraw(b.ctx, b.id, "nothing")
	requireCode(t, session.CodeNoPrompt, err)
	_, err = b.PromptWithdraw(b.ctx, "ses_nobody", first)
	requireCode(t, session.CodeNoSession, err)
}

func TestOrdinalsAreNotGivenTwice(t *testing.T) {
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
	requireCode(t, session.CodeNoSession, err)
	_, err = b.PromptGet(b.ctx, b.id, "nothing")
	requireCode(t, session.CodeNoPrompt, err)
	_, err = b.PromptGet(b.ctx, "ses_nobody", "nothing")
	requireCode(t, session.CodeNoSession, err)
}

func TestAQueueIsFullAtItsLimit(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.sql(t, `INSERT INTO prompts (session_id, id, ordinal, status, content, mode, on_unknown, author, created_at)
		SELECT id, 'p' || n, n, 'queued', '', 'followup', 'hold', '', now() FROM sessions, generate_series(1, 999) n`)
	b.sql(t, "UPDATE sessions SET last_ordinal = 999")
	_, position, _, err := b.PromptSubmit(b.ctx, session.Prompt{ID: "last", SessionID: b.id})
	require.NoError(t, err)
	require.EqualValues(t, session.MaxQueued, position)
	_, _, _, err = b.PromptSubmit(b.ctx, session.Prompt{ID: "too many", SessionID: b.id})
	requireCode(t, session.CodeQueueFull, err)
	n, err := b.PromptsCancel(b.ctx, b.id, "cleared")
	require.NoError(t, err)
	require.EqualValues(t, session.MaxQueued, n)
}

func TestAPromptThatCannotBeStoredIsRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, content := range []string{"a\x00b", "\xff"} {
		_, _, _, err := b.PromptSubmit(b.ctx, session.Prompt{ID: "p", SessionID: b.id, Content: content})
		requireCode(t, session.CodeInvalid, err)
	}
	_, _, _, err := b.PromptSubmit(b.ctx, session.Prompt{ID: "p", SessionID: b.id, Mode: "shout"})
	requireCode(t, session.CodeInvalid, err)
}

func TestOnlyALostPromptIsRequeued(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.running(t)
	p := b.submit(t, "1")
	b.submit(t, "2")
	require.NoError(t, b.PromptRequeue(b.ctx, b.id, p), "it waits already")
	run := b.begin(t, p)
	require.NoError(t, b.PromptRequeue(b.ctx, b.id, p), "it is in hand")
	_, err := b.RunEnd(b.ctx, session.RunEnding{RunID: run, Outcome: session.OutcomeUnknown, Reason: session.ReasonSandboxLost})
	require.NoError(t, err)
	require.NoError(t, b.PromptRequeue(b.ctx, b.id, p))
	got, err := b.PromptGet(b.ctx, b.id, p)
	require.NoError(t, err)
	require.Equal(t, session.PromptQueued, got.Status)
	require.EqualValues(t, 1, got.Ordinal)
	require.Empty(t, got.RunID)
	require.True(t, got.StartedAt.IsZero())
	require.True(t, got.EndedAt.IsZero())
	run = b.begin(t, p)
	_, err = b.RunEnd(b.ctx, session.RunEnding{RunID: run, Token: "t1", Outcome: session.OutcomeCompleted})
	require.NoError(t, err)
	requireCode(t, session.CodeIllegalState, b.PromptRequeue(b.ctx, b.id, p))
	requireCode(t, session.CodeNoPrompt, b.PromptRequeue(b.ctx, b.id, "nothing"))
}

func TestCancelEndsTheRunningPromptToo(t *testing.T) {
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

func TestAFaultDoesNotShowTheDriver(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, _, _, err := b.PromptSubmit(b.ctx, session.Prompt{ID: "p", SessionID: b.id, Content: "a\x00b"})
	var f *session.Fault
	require.ErrorAs(t, err, &f)
	require.NotContains(t, f.Message, "SQLSTATE")
	require.ErrorContains(t, f.Err, "SQLSTATE", "the log has it all")
}
