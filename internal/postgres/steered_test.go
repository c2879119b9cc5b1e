package postgres_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/attachment"
	"github.com/overwinter-dev/overwinter/internal/eventlog"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/run"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// takesSteers runs a prompt whose attempt, with the token "t1", gives its agent prompts during the
// turn.
func (b *harness) takesSteers(t *testing.T, promptID string) (run string) {
	t.Helper()
	run = b.begin(t, promptID)
	b.steers(t, run, "t1", 0)
	return run
}

// steers commits a frame of an attempt that gives its agent prompts during the turn.
func (b *harness) steers(t require.TestingT, run, token string, frame int64) {
	verdicts, err := b.EventsAppend(b.ctx, []eventlog.Append{{
		SessionID: b.id, RunID: run, Generation: 1, Token: token, LastFrame: frame, State: []byte(`{}`), Steers: true,
	}})
	require.NoError(t, err)
	require.Equal(t, []error{nil}, verdicts)
}

// take makes the attempt with the token "t1" take the next prompt for the turn of a run, and
// returns all taken ones.
func (b *harness) take(t require.TestingT, runID string) (ids []string) {
	prompts, err := b.SteersTake(b.ctx, run.SteerTake{RunID: runID, Token: "t1", More: true})
	require.NoError(t, err)
	for _, p := range prompts {
		ids = append(ids, p.ID)
	}
	return ids
}

func (b *harness) agentTook(t require.TestingT, runID string, ids ...string) {
	require.NoError(t, b.SteersSettle(b.ctx, run.SteerTaken{RunID: runID, Token: "t1", PromptIDs: ids}))
}

// standing returns the status of a prompt, its reason, and the prompt that it is joined to.
func (b *harness) standing(t *testing.T, id string) []string {
	t.Helper()
	p := b.prompt(t, id)
	require.Equal(t, p.Status == session.PromptQueued, p.RunID == "")
	require.Equal(t, p.Status.Final(), !p.EndedAt.IsZero())
	return []string{string(p.Status), p.Reason, p.JoinedTo}
}

// TestAPromptIsGivenToTheRunningTurn checks that an accepted prompt ends with the turn, and a
// declined one returns to the front of the queue.
func TestAPromptIsGivenToTheRunningTurn(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.running(t)
	topics := b.listen(t)
	first, next := b.submit(t, "first"), b.submit(t, "next")
	runID := b.takesSteers(t, first)
	b.opened(t)
	at := b.position(t)

	s1, position := b.steer(t, "s1")
	require.False(t, s1.Interrupts || s1.Notify || s1.Attended)
	require.EqualValues(t, 1, position)
	require.Equal(t, []string{"prompt", "queue"}, b.types(t, at))
	require.Empty(t, b.look(t).Commands)
	require.Eventually(t, func() bool { return slices.Contains(topics(), run.SteerTopic(b.id)) }, waitLimit, time.Millisecond)
	b.steer(t, "s2")
	b.steer(t, "s3")

	none, err := b.SteersTake(b.ctx, run.SteerTake{RunID: runID, Token: "t1"})
	require.NoError(t, err)
	require.Empty(t, none)
	require.Equal(t, []string{"s1"}, b.take(t, runID))
	require.Equal(t, []string{"processing", "", first}, b.standing(t, "s1"))
	require.Equal(t, runID, b.prompt(t, "s1").RunID)
	b.agentTook(t, runID, "s1")
	require.Equal(t, []string{"s1", "s2"}, b.take(t, runID))
	require.Equal(t, runID, b.claim(t, "s2").HeldBy, "for a signal that comes late")
	start, err := b.RunAttach(b.ctx, runID, "t1", run.Dispatch{No: 1, Attempt: 1}, nil)
	require.NoError(t, err)
	require.Equal(t, "first", start.Prompt.Content, "a worker that takes over gives them to the turn too")

	b.opened(t)
	ended, err := b.RunEnd(b.ctx, run.Ending{RunID: runID, Token: "t1", Outcome: session.OutcomeCompleted, RecheckFor: "w1"})
	require.NoError(t, err)
	require.Equal(t, []string{"s2", "s3", next}, []string{ended.Look.Waiting[0].ID, ended.Look.Waiting[1].ID, ended.Look.Waiting[2].ID})
	require.Equal(t, []string{"completed", session.ReasonJoined, first}, b.standing(t, "s1"))
	require.Equal(t, []string{"queued", "", ""}, b.standing(t, "s2"))
	require.Equal(t, []string{"queued", "", ""}, b.standing(t, "s3"))
	require.Equal(t, "s2", b.claim(t, next).Earlier.ID)
	second := b.takesSteers(t, "s2")
	require.Empty(t, b.take(t, second), "s3 was for the turn before: it has a turn for itself")
	_, err = b.SteersTake(b.ctx, run.SteerTake{RunID: runID, Token: "t1", More: true})
	requireCode(t, failure.IllegalState, err)
}

// TestPromptsOfLostTurn checks that a prompt that may have been written to the agent gets the
// outcome of the run, unless the agent is known not to have accepted it.
func TestPromptsOfLostTurn(t *testing.T) {
	t.Parallel()
	joined := func(status string) []string { return []string{status, session.ReasonJoined, "first"} }
	queued := []string{"queued", "", ""}
	for name, c := range map[string]struct {
		ending         run.Ending
		taken, unknown []string
	}{
		"failed":                  {run.Ending{Token: "t1", Outcome: session.OutcomeFailed, Reason: session.ReasonAgentCrashed}, joined("failed"), queued},
		"its end was read before": {run.Ending{Read: true, Outcome: session.OutcomeCompleted}, joined("completed"), queued},
		"ended by force":          {run.Ending{Outcome: session.OutcomeCancelled, Reason: session.ReasonAborted}, joined("cancelled"), joined("cancelled")},
		"unknown":                 {run.Ending{Outcome: session.OutcomeUnknown, Reason: session.ReasonSandboxLost}, joined("unknown"), joined("unknown")},
		"to run again":            {run.Ending{Outcome: session.OutcomeUnknown, Requeue: true}, queued, queued},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.running(t)
			first, _, _, err := b.PromptSubmit(b.ctx, session.Prompt{ID: "first", SessionID: b.id, Content: "first"})
			require.NoError(t, err)
			run := b.takesSteers(t, first.ID)
			b.steer(t, "taken")
			b.steer(t, "unknown")
			b.take(t, run)
			b.agentTook(t, run, "taken")
			b.take(t, run)
			c.ending.RunID = run
			_, err = b.RunEnd(b.ctx, c.ending)
			require.NoError(t, err)
			require.Equal(t, c.taken, b.standing(t, "taken"))
			require.Equal(t, c.unknown, b.standing(t, "unknown"))
			if c.ending.Outcome != session.OutcomeUnknown {
				return
			}
			if !c.ending.Requeue {
				_, _, err = b.PromptResolve(b.ctx, session.Resolve{SessionID: b.id, PromptID: "taken", Action: session.ResolutionRetry})
				requireCode(t, failure.IllegalState, err)
				_, _, err = b.PromptResolve(b.ctx, session.Resolve{SessionID: b.id, PromptID: "first", Action: session.ResolutionRetry})
				require.NoError(t, err)
			}
			require.Equal(t, queued, b.standing(t, "taken"))
			require.Equal(t, queued, b.standing(t, "unknown"))
			require.Equal(t, "taken", b.claim(t, "first").Earlier.ID)
		})
	}
}

func TestSteerInterruptsTurnWithoutSteering(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(t *testing.T, b *harness, run string, p *session.Prompt){
		"an attempt of an earlier release": func(t *testing.T, b *harness, runID string, _ *session.Prompt) {
			t.Helper()
			_, err := b.RunAttach(b.ctx, runID, "t2", run.Dispatch{No: 1, Attempt: 2}, nil)
			require.NoError(t, err)
		},
		"an attempt that cannot": func(t *testing.T, b *harness, run string, _ *session.Prompt) {
			t.Helper()
			require.NoError(t, b.appendOne(t, eventlog.Append{SessionID: b.id, RunID: run, Generation: 1, Token: "t1", LastFrame: 1, State: []byte(`{}`)}))
		},
		"a file": func(_ *testing.T, _ *harness, _ string, p *session.Prompt) {
			p.Attachments = []attachment.Attachment{picture("a")}
		},
		"another policy": func(_ *testing.T, _ *harness, _ string, p *session.Prompt) { p.OnUnknown = session.Retry },
		"a question": func(t *testing.T, b *harness, run string, _ *session.Prompt) {
			t.Helper()
			require.NoError(t, b.appendOne(t, eventlog.Append{
				SessionID: b.id, RunID: run, Generation: 1, Token: "t1", LastFrame: 1, State: []byte(`{}`), Steers: true,
				Questions: []eventlog.Question{{Frame: 1, Asked: permission, At: time.Now(), ExpiresAt: time.Now().Add(time.Hour)}},
			}))
		},
		"too many": func(t *testing.T, b *harness, _ string, _ *session.Prompt) {
			t.Helper()
			for i := range session.MaxSteered {
				s, _ := b.steer(t, fmt.Sprintf("s%d", i))
				require.False(t, s.Interrupts)
			}
			require.Empty(t, b.look(t).Commands)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.running(t)
			run := b.takesSteers(t, b.submit(t, "first"))
			b.opened(t)
			p := session.Prompt{ID: "steer", SessionID: b.id, Content: "steer", Mode: session.Steer}
			change(t, b, run, &p)
			_, _, _, err := b.PromptSubmit(b.ctx, p)
			require.NoError(t, err)
			require.Len(t, b.look(t).Commands, 1)
			require.Equal(t, session.ReasonSteered, b.look(t).Commands[0].Reason)
			require.NotContains(t, b.takeOf(t, run), "steer")
		})
	}
}

// takeOf returns the prompts that the attempt that has a run gets for its turn.
func (b *harness) takeOf(t *testing.T, runID string) (ids []string) {
	t.Helper()
	r, err := b.RunGet(b.ctx, runID)
	require.NoError(t, err)
	prompts, err := b.SteersTake(b.ctx, run.SteerTake{RunID: runID, Token: r.Token, More: true})
	require.NoError(t, err)
	for _, p := range prompts {
		ids = append(ids, p.ID)
	}
	return ids
}

// TestTurnAcceptsNoPrompt covers a held queue, a pending command and a withdrawn prompt.
func TestTurnAcceptsNoPrompt(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.running(t)
	run := b.takesSteers(t, b.submit(t, "first"))
	b.steer(t, "s1")
	b.steer(t, "s2")
	b.holdQueue(t, "")
	require.Empty(t, b.take(t, run))
	held, _ := b.steer(t, "held")
	require.False(t, held.Interrupts)
	b.release(t)
	_, err := b.PromptWithdraw(b.ctx, b.id, "s1")
	require.NoError(t, err)
	require.Equal(t, []string{"s2"}, b.take(t, run))
	b.command(t, session.CommandAbort)
	b.steer(t, "s3")
	require.Equal(t, []string{"s2"}, b.take(t, run))
	_, err = b.PromptWithdraw(b.ctx, b.id, "s2")
	requireCode(t, failure.NotQueued, err)
}

// TestTurnEndedByEarlierRelease checks prompts that were given to the turn; that release does not
// support them.
func TestTurnEndedByEarlierRelease(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		policy session.OnUnknown
		status string // status of the first prompt
		want   []string
	}{
		"hold":   {session.Hold, "completed", []string{"completed", "unknown"}},
		"fail":   {session.Fail, "completed", []string{"completed", "failed"}},
		"retry":  {session.Retry, "failed", []string{"failed", "queued"}},
		"queued": {session.Hold, "queued", []string{"queued", "queued"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.running(t)
			submit := func(id string, mode session.Mode) {
				_, _, _, err := b.PromptSubmit(b.ctx, session.Prompt{ID: id, SessionID: b.id, Content: id, Mode: mode, OnUnknown: c.policy})
				require.NoError(t, err)
			}
			submit("first", session.Followup)
			run := b.takesSteers(t, "first")
			submit("taken", session.Steer)
			submit("unknown", session.Steer)
			b.take(t, run)
			b.agentTook(t, run, "taken")
			b.take(t, run)
			b.sql(t, `WITH p AS (UPDATE prompts SET status = $2, ended_at = CASE $2 WHEN 'queued' THEN NULL ELSE now() END, run_id = CASE $2 WHEN 'queued' THEN '' ELSE run_id END
				WHERE session_id = $3 AND id = 'first')
				UPDATE runs SET ended_at = now(), outcome = 'completed', token = '' WHERE id = $1`, run, c.status, b.id)
			require.Equal(t, c.want, []string{b.standing(t, "taken")[0], b.standing(t, "unknown")[0]})
		})
	}
}
