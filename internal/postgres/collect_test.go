package postgres_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/attachment"
	"github.com/overwinter-dev/overwinter/internal/backlog"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/run"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// collect queues a prompt of the mode collect.
func (b *harness) collect(t *testing.T, content string, change ...func(*session.Prompt)) session.Prompt {
	t.Helper()
	p := session.Prompt{ID: session.NewID(session.PromptPrefix), SessionID: b.id, Content: content, Mode: session.Collect, CollectFor: time.Hour}
	for _, c := range change {
		c(&p)
	}
	stored, _, _, err := b.PromptSubmit(b.ctx, p)
	require.NoError(t, err)
	return stored
}

// lapse lets the collection time of prompts pass.
func (b *harness) lapse(t *testing.T) {
	t.Helper()
	b.sql(t, `UPDATE prompts SET collect_until = now() - interval '1 second' WHERE session_id = $1 AND collect_until IS NOT NULL`, b.id)
}

func (b *harness) collected(t *testing.T) *session.Prompt {
	t.Helper()
	next, left, err := b.PromptsCollected(b.ctx, b.id)
	require.NoError(t, err)
	require.Zero(t, left)
	return next
}

func (b *harness) prompt(t *testing.T, id string) session.Prompt {
	t.Helper()
	p, err := b.PromptGet(b.ctx, b.id, id)
	require.NoError(t, err)
	return p
}

func named(name, content string) attachment.Attachment {
	a := picture(content)
	a.Name = name
	a.ID += name
	return a
}

// TestCollectedPromptsRunAsOne checks that no run gets them during the collection; then the agent
// gets all of them, with their files, and they end together.
func TestCollectedPromptsRunAsOne(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.running(t)
	first := b.collect(t, "one", func(p *session.Prompt) { p.Attachments = []attachment.Attachment{named("a.png", "1")} })
	require.Equal(t, time.Hour, first.CollectFor)
	require.False(t, first.Notify || first.Attended, "it waits for others")
	second := b.collect(t, "two", func(p *session.Prompt) {
		p.Attachments = []attachment.Attachment{named("a.png", "2"), named("a.png", "1"), named("b.png", "3")}
	})
	third := b.collect(t, "three")
	require.Equal(t, []string{"", first.ID, first.ID}, []string{first.JoinedTo, second.JoinedTo, third.JoinedTo})
	require.False(t, b.prompt(t, first.ID).CollectUntil.Before(third.CollectUntil), "all wait longer")

	require.True(t, b.claim(t, first.ID).Held)
	require.Empty(t, b.look(t).Waiting)
	require.Empty(t, b.opened(t).Waiting)
	require.Empty(t, b.unclaimed(t))
	next, left, err := b.PromptsCollected(b.ctx, b.id)
	require.NoError(t, err)
	require.Nil(t, next)
	require.Greater(t, left, 30*time.Minute)

	b.lapse(t)
	next = b.collected(t)
	require.Equal(t, first.ID, next.ID)
	require.True(t, next.Notify)
	require.Nil(t, b.collected(t), "once")
	require.Equal(t, []session.QueuedPrompt{{ID: first.ID, Ordinal: 1}}, b.look(t).Waiting)
	require.Equal(t, first.ID, b.claim(t, second.ID).Earlier.ID)

	runID := b.begin(t, first.ID)
	start, err := b.RunAttach(b.ctx, runID, "t2", run.Dispatch{No: 1, Attempt: 2}, nil)
	require.NoError(t, err)
	require.Equal(t, "one\n\ntwo\n\nthree", start.Prompt.Content)
	var files []string
	for _, a := range start.Prompt.Attachments {
		files = append(files, a.Name)
	}
	require.Equal(t, []string{"a.png", "2-a.png", "b.png"}, files, "each once, with unique names")
	for _, p := range []session.Prompt{first, second, third} {
		got := b.prompt(t, p.ID)
		require.Equal(t, session.PromptProcessing, got.Status)
		require.Equal(t, runID, got.RunID)
		require.Zero(t, got.CollectUntil)
	}
	_, err = b.PromptWithdraw(b.ctx, b.id, second.ID)
	requireCode(t, failure.NotQueued, err)
	require.Equal(t, first.ID, b.opened(t).Processing.PromptID)
	fourth := b.collect(t, "four")
	require.Empty(t, fourth.JoinedTo, "the first has begun")

	b.end(t, runID, "t2", "")
	require.Equal(t, session.PromptCompleted, b.prompt(t, first.ID).Status)
	require.Empty(t, b.prompt(t, first.ID).Reason)
	for _, p := range []session.Prompt{second, third} {
		got := b.prompt(t, p.ID)
		require.Equal(t, session.PromptCompleted, got.Status)
		require.Equal(t, session.ReasonCollected, got.Reason)
		require.Equal(t, first.ID, got.JoinedTo)
		require.Nil(t, got.Usage, "it is counted once")
	}
	after, err := b.PromptAfter(b.ctx, b.id, second.ID)
	require.NoError(t, err)
	want, err := b.PromptAfter(b.ctx, b.id, first.ID)
	require.NoError(t, err)
	require.Equal(t, want, after, "they have one turn")
}

// TestFilesOfJoinedPromptsGetUniqueNames checks that names stay within their bound when a number is
// added to distinguish them.
func TestFilesOfJoinedPromptsGetUniqueNames(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.running(t)
	long := strings.Repeat("ä", (attachment.MaxNameBytes-5)/2) + "x.png"
	require.Len(t, long, attachment.MaxNameBytes)
	first := b.collect(t, "one", func(p *session.Prompt) {
		p.Attachments = []attachment.Attachment{named(long, "1"), named("A.png", "1")}
	})
	b.collect(t, "two", func(p *session.Prompt) {
		p.Attachments = []attachment.Attachment{named(long, "2"), named("a.png", "2")}
	})
	b.collect(t, "three", func(p *session.Prompt) { p.Attachments = []attachment.Attachment{named(long, "3")} })
	b.lapse(t)
	start, err := b.RunAttach(b.ctx, b.begin(t, first.ID), "t2", run.Dispatch{No: 1, Attempt: 2}, nil)
	require.NoError(t, err)
	names := map[string]bool{}
	for _, a := range start.Prompt.Attachments {
		require.Empty(t, attachment.CheckName(a.Name), "%q", a.Name)
		require.True(t, strings.HasSuffix(a.Name, ".png"))
		names[strings.ToLower(a.Name)] = true
	}
	require.Len(t, names, 5)
}

// TestUnjoinedPromptEndsCollection checks that the collected prompts keep their place before it.
func TestUnjoinedPromptEndsCollection(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.running(t)
	first := b.collect(t, "one")
	second := b.submit(t, "two")
	require.Equal(t, first.ID, b.claim(t, second).Earlier.ID)
	for name, change := range map[string]func(*session.Prompt){
		"policy":  func(p *session.Prompt) { p.OnUnknown = session.Retry },
		"content": func(p *session.Prompt) { p.Content = strings.Repeat("x", session.MaxPromptBytes-10) },
		"files": func(p *session.Prompt) {
			for i := range attachment.MaxPromptFiles {
				p.Attachments = append(p.Attachments, named(strings.Repeat("a", i+1), name3(i)))
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			head := b.collect(t, "a head that takes more than ten bytes", func(p *session.Prompt) {
				p.Attachments = []attachment.Attachment{named("head.png", name)}
			})
			other := b.collect(t, "other", change)
			require.Empty(t, other.JoinedTo)
			require.True(t, b.prompt(t, head.ID).CollectUntil.IsZero())
			require.False(t, b.prompt(t, other.ID).CollectUntil.IsZero())
		})
	}
}

// TestCollectionIsBoundedInPrompts checks that the next prompt begins another collection.
func TestCollectionIsBoundedInPrompts(t *testing.T) {
	t.Parallel()
	b := setup(t)
	head := b.collect(t, "0")
	for i := range session.MaxCollected {
		p := b.collect(t, "x")
		require.Equal(t, i+1 == session.MaxCollected, p.JoinedTo == "", "%d", i)
		require.Contains(t, []string{head.ID, ""}, p.JoinedTo)
	}
}

func name3(i int) string { return strings.Repeat("b", i+1) }

// TestCollectionEndsAtDeadline checks that the deadline does not depend on the number of submitted
// prompts.
func TestCollectionEndsAtDeadline(t *testing.T) {
	t.Parallel()
	b := setup(t)
	head := b.collect(t, "0")
	b.sql(t, `UPDATE prompts SET created_at = now() - interval '570 minutes' WHERE session_id = $1`, b.id)
	require.Equal(t, head.ID, b.collect(t, "1").JoinedTo)
	left := time.Until(b.prompt(t, head.ID).CollectUntil)
	require.Greater(t, left, 20*time.Minute)
	require.LessOrEqual(t, left, 30*time.Minute)
}

// TestCollectedPromptsAreWithdrawnAndReplacedOneByOne also checks that they are promoted together.
func TestCollectedPromptsAreWithdrawnAndReplacedOneByOne(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.running(t)
	before := b.submit(t, "before")
	first, second, third := b.collect(t, "one"), b.collect(t, "two"), b.collect(t, "three")
	_, err := b.PromptReplace(b.ctx, b.id, third.ID, strings.Repeat("x", session.MaxPromptBytes-8))
	requireCode(t, failure.TooLarge, err)
	_, err = b.PromptReplace(b.ctx, b.id, third.ID, strings.Repeat("x", session.MaxPromptBytes-10))
	require.NoError(t, err)
	_, err = b.PromptReplace(b.ctx, b.id, third.ID, "3")
	require.NoError(t, err)
	_, err = b.PromptWithdraw(b.ctx, b.id, first.ID)
	require.NoError(t, err)
	require.Empty(t, b.prompt(t, second.ID).JoinedTo)
	require.Equal(t, second.ID, b.prompt(t, third.ID).JoinedTo)

	promoted, err := b.PromptPromote(b.ctx, b.id, third.ID)
	require.NoError(t, err)
	require.EqualValues(t, -1, promoted.Rank)
	require.Zero(t, promoted.CollectUntil, "nothing joins them any more")
	require.EqualValues(t, -1, b.prompt(t, second.ID).Rank)
	require.Equal(t, second.ID, b.claim(t, before).Earlier.ID)
	runID := b.begin(t, second.ID)
	start, err := b.RunAttach(b.ctx, runID, "t2", run.Dispatch{No: 1, Attempt: 2}, nil)
	require.NoError(t, err)
	require.Equal(t, "two\n\n3", start.Prompt.Content)
}

// TestPromotedCollectionIsSignalled checks that the promotion itself signals the workflow, because
// the timer no longer does.
func TestPromotedCollectionIsSignalled(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.running(t)
	first := b.collect(t, "one")
	promoted, err := b.PromptPromote(b.ctx, b.id, first.ID)
	require.NoError(t, err)
	require.True(t, promoted.Notify)
	require.Zero(t, promoted.Rank, "it is first")
	require.True(t, b.claim(t, first.ID).Granted)
}

// TestAttendantClaimsCollectedPrompts checks that an attendant claims them only after the
// collection has ended.
func TestAttendantClaimsCollectedPrompts(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.attended(t)
	first := b.collect(t, "one")
	b.collect(t, "two")
	require.Equal(t, run.Claimed{Attended: true}, b.claimFor(t, "a1"))
	at := b.position(t)
	b.lapse(t)
	next := b.collected(t)
	require.True(t, next.Attended && !next.Notify)
	require.Greater(t, b.position(t), at, "the event wakes the attendant")
	start := b.claimFor(t, "a1").Start
	require.Equal(t, first.ID, start.Prompt.ID)
	require.Equal(t, "one\n\ntwo", start.Prompt.Content)
}

// TestCollectionOfKilledAPIIsRelayed checks that a relay can end the collection from its rows
// alone.
func TestCollectionOfKilledAPIIsRelayed(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.running(t)
	first := b.collect(t, "one")
	b.collect(t, "two")
	b.sql(t, `UPDATE prompts SET created_at = now() - interval '1 hour' WHERE session_id = $1`, b.id)
	require.Empty(t, b.unclaimed(t))
	b.lapse(t)
	require.Equal(t, []backlog.Unclaimed{{SessionID: b.id, PromptID: first.ID, Ordinal: 1}}, b.unclaimed(t))
	require.True(t, b.claim(t, first.ID).Granted)
}

// TestJoinedPromptRunsAloneIfEarlierReleaseEndedItsPrompt covers a release that does not support
// joined prompts.
func TestJoinedPromptRunsAloneIfEarlierReleaseEndedItsPrompt(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.running(t)
	first, second := b.collect(t, "one"), b.collect(t, "two")
	b.lapse(t)
	b.sql(t, `UPDATE prompts SET status = 'completed', ended_at = now() WHERE session_id = $1 AND id = $2`, b.id, first.ID)
	require.Equal(t, []session.QueuedPrompt{{ID: second.ID, Ordinal: 2}}, b.look(t).Waiting)
	require.Len(t, b.opened(t).Waiting, 1)
	require.True(t, b.claim(t, second.ID).Granted)
	require.Empty(t, b.prompt(t, second.ID).JoinedTo)
}

// TestJoinedPromptsEndWithRunOfEarlierRelease covers a run that a worker of that release has taken
// over.
func TestJoinedPromptsEndWithRunOfEarlierRelease(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.running(t)
	first, second := b.collect(t, "one"), b.collect(t, "two")
	b.lapse(t)
	run := b.begin(t, first.ID)
	b.sql(t, `WITH r AS (UPDATE runs SET ended_at = now(), outcome = 'cancelled' WHERE id = $1)
		UPDATE prompts SET status = 'queued', run_id = '', started_at = NULL WHERE session_id = $2 AND id = $3`, run, b.id, first.ID)
	waits := b.prompt(t, second.ID)
	require.Equal(t, session.PromptQueued, waits.Status)
	require.Empty(t, waits.RunID)

	run = b.begin(t, first.ID)
	b.sql(t, `WITH r AS (UPDATE runs SET ended_at = now(), outcome = 'unknown' WHERE id = $1)
		UPDATE prompts SET status = 'unknown', ended_at = now() WHERE session_id = $2 AND id = $3`, run, b.id, first.ID)
	lost := b.prompt(t, second.ID)
	require.Equal(t, session.PromptUnknown, lost.Status)
	require.Equal(t, session.ReasonCollected, lost.Reason)

	b.sql(t, `UPDATE prompts SET status = 'completed' WHERE session_id = $1 AND id = $2`, b.id, first.ID)
	_, changed, err := b.PromptResolve(b.ctx, session.Resolve{SessionID: b.id, PromptID: second.ID, Action: session.ResolutionRetry})
	require.NoError(t, err)
	require.True(t, changed)
	require.True(t, b.claim(t, second.ID).Granted)
}

// TestHeldQueueCollects checks that the collected prompts start when the queue is released.
func TestHeldQueueCollects(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.running(t)
	b.holdQueue(t, "")
	first := b.collect(t, "one")
	require.Nil(t, b.release(t), "its time is not over")
	b.holdQueue(t, "")
	b.lapse(t)
	require.Nil(t, b.collected(t))
	require.Equal(t, first.ID, b.release(t).ID)
}

// TestOutcomesOfJoinedPrompts checks that they are requeued, resolved and reverted only together
// with the prompt that they are joined to.
func TestOutcomesOfJoinedPrompts(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.running(t)
	first, second := b.collect(t, "one"), b.collect(t, "two")
	b.lapse(t)
	runID := b.begin(t, first.ID)
	queued, err := b.RunReturn(b.ctx, runID, session.ReasonSandboxLost, false)
	require.NoError(t, err)
	require.True(t, queued)
	require.Equal(t, session.PromptQueued, b.prompt(t, second.ID).Status)

	runID = b.begin(t, first.ID)
	_, err = b.RunEnd(b.ctx, run.Ending{RunID: runID, Outcome: session.OutcomeUnknown})
	require.NoError(t, err)
	require.Equal(t, session.PromptUnknown, b.prompt(t, second.ID).Status)
	resolve := session.Resolve{SessionID: b.id, PromptID: second.ID, Action: session.ResolutionRetry}
	_, _, err = b.PromptResolve(b.ctx, resolve)
	requireCode(t, failure.IllegalState, err)
	resolve.PromptID = first.ID
	_, _, err = b.PromptResolve(b.ctx, resolve)
	require.NoError(t, err)
	require.Equal(t, session.PromptQueued, b.prompt(t, second.ID).Status)

	runID = b.begin(t, first.ID)
	_, err = b.RunEnd(b.ctx, run.Ending{RunID: runID, Outcome: session.OutcomeUnknown})
	require.NoError(t, err)
	_, _, err = b.PromptResolve(b.ctx, session.Resolve{SessionID: b.id, PromptID: first.ID, Action: session.ResolutionResolve, Outcome: session.PromptFailed})
	require.NoError(t, err)
	require.Equal(t, session.PromptFailed, b.prompt(t, second.ID).Status)
	_, err = b.CommandSubmit(b.ctx, session.Command{SessionID: b.id, Kind: session.CommandRevert, PromptID: second.ID})
	require.ErrorContains(t, err, first.ID)
	require.NoError(t, b.SessionRevert(b.ctx, b.id, 1, []string{runID}, nil))
	require.Equal(t, session.ReasonReverted, b.prompt(t, second.ID).Reason)
}
