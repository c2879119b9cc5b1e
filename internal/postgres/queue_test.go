package postgres_test

import (
	"encoding/json"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/event"
	"github.com/overwinter-dev/overwinter/internal/eventlog"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/resource"
	"github.com/overwinter-dev/overwinter/internal/run"
	"github.com/overwinter-dev/overwinter/internal/session"
)

func decodePrompt(t *testing.T, e eventlog.Event) resource.PromptJSON {
	t.Helper()
	require.Equal(t, event.TypePrompt, e.Type)
	var data event.PromptData
	require.NoError(t, json.Unmarshal(e.Data, &data))
	return data.Prompt.Whole()
}

func TestQueuedPromptIsReplaced(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.running(t)
	first := b.submit(t, "deploy to production")
	p, err := b.PromptReplace(b.ctx, b.id, first, "deploy to staging")
	require.NoError(t, err)
	require.Equal(t, "deploy to staging", p.Content)
	require.EqualValues(t, 1, p.Ordinal)
	events := b.events(t)
	require.Equal(t, []string{"prompt", "title", "queue"}, b.types(t, b.position(t)-3))
	require.Equal(t, "deploy to staging", decodePrompt(t, events[len(events)-3]).Content)
	s, err := b.SessionGet(b.ctx, b.id)
	require.NoError(t, err)
	require.Equal(t, "deploy to staging", s.Title)
	before := b.position(t)
	_, err = b.PromptReplace(b.ctx, b.id, first, "deploy to staging")
	require.NoError(t, err)
	require.Equal(t, before, b.position(t), "it is the same")

	_, _, created, err := b.PromptSubmit(b.ctx, session.Prompt{ID: first, SessionID: b.id, Content: "deploy to production"})
	require.NoError(t, err, "the request that submitted it is repeated")
	require.False(t, created)
	_, _, _, err = b.PromptSubmit(b.ctx, session.Prompt{ID: first, SessionID: b.id, Content: "deploy to staging"})
	requireCode(t, failure.PromptExists, err)

	runID := b.begin(t, first)
	_, err = b.PromptReplace(b.ctx, b.id, first, "too late")
	requireCode(t, failure.NotQueued, err)
	start, err := b.RunAttach(b.ctx, runID, "t1", run.Dispatch{No: 1, Attempt: 1}, nil)
	require.NoError(t, err)
	require.Equal(t, "deploy to staging", start.Prompt.Content)
	_, err = b.PromptReplace(b.ctx, b.id, "none", "x")
	requireCode(t, failure.NoPrompt, err)
}

// TestTitleOfPersonSurvivesPromptReplacement also covers a title that equals the one derived from
// the prompt.
func TestTitleOfPersonSurvivesPromptReplacement(t *testing.T) {
	t.Parallel()
	b := setup(t)
	title := "the beginning"
	first := b.submit(t, title)
	_, err := b.SessionPatch(b.ctx, b.id, session.Patch{Title: &title})
	require.NoError(t, err)
	_, err = b.PromptReplace(b.ctx, b.id, first, "another")
	require.NoError(t, err)
	require.Equal(t, []string{"prompt", "queue"}, b.types(t, b.position(t)-2))
}

func TestPromotedPromptRunsNext(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.running(t)
	first, second, third := b.submit(t, "1"), b.submit(t, "2"), b.submit(t, "3")
	for _, id := range []string{second, third} {
		_, err := b.PromptPromote(b.ctx, b.id, id)
		require.NoError(t, err)
	}
	before := b.position(t)
	p, err := b.PromptPromote(b.ctx, b.id, third)
	require.NoError(t, err)
	require.Equal(t, before, b.position(t), "it is first")
	require.EqualValues(t, 3, p.Ordinal)
	_, position, _, err := b.PromptSubmit(b.ctx, session.Prompt{ID: first, SessionID: b.id, Content: "1"})
	require.NoError(t, err)
	require.EqualValues(t, 3, position)
	require.Equal(t, third, b.claim(t, first).Earlier.ID)
	require.True(t, b.claim(t, third).Granted)
	_, err = b.PromptPromote(b.ctx, b.id, third)
	requireCode(t, failure.NotQueued, err)
}

// TestLongQueueIsCleared checks that a queue is cleared completely or not at all, with queue events
// of a bounded size.
func TestLongQueueIsCleared(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.running(t)
	var want []string
	running := b.submit(t, "runs")
	for i := range 450 {
		want = append(want, b.submit(t, fmt.Sprint(i)))
	}
	b.begin(t, running)
	before := b.position(t)
	cleared, err := b.PromptsClear(b.ctx, b.id)
	require.NoError(t, err)
	require.Equal(t, want, cleared)
	var queue event.Queue
	for _, e := range b.events(t) {
		if e.Type == event.TypeQueue {
			data := queueOf(t, e)
			require.LessOrEqual(t, len(data.Changes), 200)
			queue.Apply(data)
		} else if e.Type == event.TypePrompt && e.Seq > before {
			require.Equal(t, session.ReasonCleared, decodePrompt(t, e).Reason)
		}
	}
	require.Equal(t, []event.QueueItem{{PromptID: running, Ordinal: 1, Status: session.PromptProcessing}}, queue.Items())
	cleared, err = b.PromptsClear(b.ctx, b.id)
	require.NoError(t, err)
	require.Empty(t, cleared)
	_, err = b.PromptsClear(b.ctx, "ses_none")
	requireCode(t, failure.NoSession, err)
}

// TestClaimsRacingWithQueueChanges checks that a claim gets the replaced content or the
// replacement is refused, and that a cleared prompt never starts.
func TestClaimsRacingWithQueueChanges(t *testing.T) {
	t.Parallel()
	shared := setup(t)
	for i := range 20 {
		b := &harness{DB: shared.DB, ctx: shared.ctx}
		b.id = b.session(t)
		b.attended(t)
		id := b.submit(t, "old")
		var claimed run.Claimed
		var claimErr, replaceErr, clearErr error
		var cleared []string
		var wg sync.WaitGroup
		wg.Go(func() {
			claimed, claimErr = b.RunClaim(session.WithWorkflowRun(b.ctx, "w1"), run.Claim{
				SessionID: b.id, Attendant: "a1", Generation: 1, RunID: session.NewID(session.RunPrefix), Token: "c", Attempt: 1,
			})
		})
		wg.Go(func() {
			if i%2 == 0 {
				_, replaceErr = b.PromptReplace(b.ctx, b.id, id, "new")
			} else {
				cleared, clearErr = b.PromptsClear(b.ctx, b.id)
			}
		})
		wg.Wait()
		require.NoError(t, claimErr)
		require.NoError(t, clearErr)
		p, err := b.PromptGet(b.ctx, b.id, id)
		require.NoError(t, err)
		switch {
		case i%2 == 1:
			require.Equal(t, len(cleared) == 0, claimed.Start != nil)
			require.Equal(t, len(cleared) == 1, p.Status == session.PromptCancelled)
		case replaceErr == nil:
			require.Equal(t, "new", claimed.Start.Prompt.Content)
		default:
			requireCode(t, failure.NotQueued, replaceErr)
			require.Equal(t, "old", claimed.Start.Prompt.Content)
		}
		if claimed.Start != nil {
			require.Equal(t, p.Content, claimed.Start.Prompt.Content)
		}
	}
}
