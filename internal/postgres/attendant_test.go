package postgres_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/backlog"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/postgres/dbsqlc"
	"github.com/overwinter-dev/overwinter/internal/run"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// attended opens the session for the workflow run w1, runs a prompt and gives the session the
// attendant "a1".
func (b *harness) attended(t *testing.T) {
	t.Helper()
	_, err := b.SessionOpen(b.ctx, b.id, "w1")
	require.NoError(t, err)
	b.running(t)
	b.attend(t, "a1")
}

// attend runs a prompt for the workflow and gives the session an attendant.
func (b *harness) attend(t *testing.T, attendant string) {
	t.Helper()
	require.True(t, b.end(t, b.begin(t, b.submit(t, "first")), "t1", attendant).Attended)
}

func (b *harness) end(t *testing.T, runID, token, attendant string) run.Run {
	t.Helper()
	ended, err := b.RunEnd(b.ctx, run.Ending{
		RunID: runID, Token: token, Outcome: session.OutcomeCompleted, RecheckFor: "w1", Attend: attendant,
	})
	require.NoError(t, err)
	return ended
}

func (b *harness) claimFor(t *testing.T, attendant string) run.Claimed {
	t.Helper()
	claimed, err := b.RunClaim(session.WithWorkflowRun(b.ctx, "w1"), run.Claim{
		SessionID: b.id, Attendant: attendant, Generation: b.generation(t), RunID: session.NewID(session.RunPrefix), Token: "c1", Attempt: 1,
	})
	require.NoError(t, err)
	return claimed
}

// TestAttendantClaimsPromptsInOrder checks that a claim writes the same events as a claim by a
// workflow and an attach by its worker. It also repeats a claim whose response was lost.
func TestAttendantClaimsPromptsInOrder(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.attended(t)
	require.Equal(t, run.Claimed{Attended: true}, b.claimFor(t, "a1"), "nothing waits")

	second, third := b.submit(t, "second"), b.submit(t, "third")
	before := b.position(t)
	claim := run.Claim{SessionID: b.id, Attendant: "a1", Generation: 1, RunID: session.NewID(session.RunPrefix), Token: "c1", Attempt: 2}
	claimed, err := b.RunClaim(b.ctx, claim)
	require.NoError(t, err)
	require.Equal(t, second, claimed.Start.Prompt.ID)
	require.Equal(t, "second", claimed.Start.Prompt.Content)
	require.Equal(t, []string{"turn_start", "prompt", "queue"}, b.types(t, before))
	again, err := b.RunClaim(b.ctx, claim)
	require.NoError(t, err)
	require.False(t, again.Start.SecretsMark.At.Before(claimed.Start.SecretsMark.At))
	again.Start.SecretsMark.At = claimed.Start.SecretsMark.At // it was read again
	require.Equal(t, claimed, again)
	require.Equal(t, before+3, b.position(t))

	// The run has the same state as after an attach.
	id := claimed.Start.Run.ID
	require.Equal(t, claimed.Start.Prompt.AllottedRun, id)
	current, err := b.RunGet(b.ctx, id)
	require.NoError(t, err)
	require.EqualValues(t, 1, current.Attempt)
	require.Equal(t, run.Dispatch{No: 1, Attempt: 2}, current.Held)
	require.Equal(t, current, claimed.Start.Run)
	_, err = b.RunAttach(b.ctx, id, "late", run.Dispatch{No: 1, Attempt: 2}, nil)
	requireCode(t, failure.IllegalState, err)
	loaded, err := b.SessionOpen(b.ctx, b.id, "w1")
	require.NoError(t, err)
	require.Equal(t, id, loaded.Processing.RunID)
	_, err = b.RunAttach(b.ctx, id, "next", run.Dispatch{No: loaded.Processing.Dispatch, Attempt: 1}, nil)
	require.NoError(t, err, "the workflow gives it to another worker")
	_, err = b.RunEnd(b.ctx, run.Ending{RunID: id, Token: "c1", Outcome: session.OutcomeCompleted})
	requireCode(t, failure.IllegalState, err)

	require.True(t, b.end(t, id, "next", "a2").Attended)
	require.Equal(t, run.Claimed{}, b.claimFor(t, "a1"), "that was the previous one")
	require.Equal(t, third, b.claimFor(t, "a2").Start.Prompt.ID)
}

// TestOutdatedAttendantClaimsNothing resumes a frozen attendant with outdated arguments. RunClaim
// checks each argument, and the pending work, under the session's lock.
func TestOutdatedAttendantClaimsNothing(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(t *testing.T, b *harness){
		"the workflow has opened the session": func(t *testing.T, b *harness) {
			_, err := b.SessionOpen(b.ctx, b.id, "w1")
			require.NoError(t, err)
		},
		"the workflow has taken the session back": func(t *testing.T, b *harness) {
			taken, err := b.SessionReclaim(b.ctx, b.id, "w1")
			require.NoError(t, err)
			require.Nil(t, taken.Run)
		},
		"it has left": func(t *testing.T, b *harness) {
			look, err := b.AttendantLeave(b.ctx, b.id, "a1", "w1")
			require.NoError(t, err)
			require.NotNil(t, look)
			look, err = b.AttendantLeave(b.ctx, b.id, "a1", "w1")
			require.NoError(t, err)
			require.Nil(t, look, "the attendant has left already")
		},
		"the workflow has claimed": func(t *testing.T, b *harness) { b.begin(t, b.submit(t, "second")) },
		"the workflow has run a prompt": func(t *testing.T, b *harness) {
			_, err := b.RunEnd(b.ctx, run.Ending{RunID: b.begin(t, b.submit(t, "second")), Outcome: session.OutcomeCompleted})
			require.NoError(t, err)
		},
		"another attends": func(t *testing.T, b *harness) { b.attend(t, "a2") },
		"the session hibernates": func(t *testing.T, b *harness) {
			b.transit(t, session.EventHibernate, session.ReasonIdle)
		},
		"the session has moved to another sandbox": func(t *testing.T, b *harness) {
			b.transit(t, session.EventHibernate, session.ReasonIdle)
			b.transit(t, session.EventSaved, "")
			b.transit(t, session.EventWake, "")
			b.reserve(t, 2)
			b.transit(t, session.EventReady, "")
		},
		"a worker of an earlier version has moved the session, and left the token": func(t *testing.T, b *harness) {
			b.transit(t, session.EventHibernate, session.ReasonIdle)
			b.transit(t, session.EventSaved, "")
			b.transit(t, session.EventWake, "")
			b.reserve(t, 2)
			b.transit(t, session.EventReady, "")
			b.sql(t, "UPDATE sessions SET attendant = 'a1' WHERE id = $1", b.id)
		},
		"a worker of an earlier version has claimed, and left the token": func(t *testing.T, b *harness) {
			b.begin(t, b.submit(t, "second"))
			b.sql(t, "UPDATE sessions SET attendant = 'a1' WHERE id = $1", b.id)
		},
		"a command waits": func(t *testing.T, b *harness) { b.command(t, session.CommandSync) },
		"a stop waits":    func(t *testing.T, b *harness) { b.command(t, session.CommandStop) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.attended(t)
			change(t, b)
			prompt := b.submit(t, "unattended")
			before := b.position(t)
			claimed, err := b.RunClaim(session.WithWorkflowRun(b.ctx, "w1"), run.Claim{
				SessionID: b.id, Attendant: "a1", Generation: 1, RunID: session.NewID(session.RunPrefix), Token: "c1", Attempt: 1,
			})
			require.NoError(t, err)
			require.Equal(t, run.Claimed{Commanded: strings.HasSuffix(name, "waits")}, claimed)
			require.Equal(t, before, b.position(t))
			p, err := b.PromptGet(b.ctx, b.id, prompt)
			require.NoError(t, err)
			require.Equal(t, session.PromptQueued, p.Status)
		})
	}
}

// TestAttendantOfReplacedWorkflowIsRefused also covers a session opened by a worker of an earlier
// version, which does not clear the token.
func TestAttendantOfReplacedWorkflowIsRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.attended(t)
	_, err := b.SessionOpen(b.ctx, b.id, "w2")
	require.NoError(t, err)
	b.sql(t, "UPDATE sessions SET attendant = 'a1' WHERE id = $1", b.id)
	b.submit(t, "second")
	_, err = b.RunClaim(session.WithWorkflowRun(b.ctx, "w1"), run.Claim{
		SessionID: b.id, Attendant: "a1", Generation: 1, RunID: session.NewID(session.RunPrefix), Token: "c1",
	})
	requireCode(t, failure.StaleWorkflow, err)
	_, err = b.AttendantLeave(session.WithWorkflowRun(b.ctx, "w1"), b.id, "a1", "w1")
	requireCode(t, failure.StaleWorkflow, err)
}

// TestAttendanceIsGrantedAfterSuccessfulTurn checks that an attendance is granted only if nothing
// but a prompt may follow.
func TestAttendanceIsGrantedAfterSuccessfulTurn(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(t *testing.T, b *harness, ending *run.Ending){
		"the turn failed":      func(_ *testing.T, _ *harness, e *run.Ending) { e.Outcome = session.OutcomeFailed },
		"not requested":        func(_ *testing.T, _ *harness, e *run.Ending) { e.Attend = "" },
		"it does not look":     func(_ *testing.T, _ *harness, e *run.Ending) { e.RecheckFor = "" },
		"for another workflow": func(_ *testing.T, _ *harness, e *run.Ending) { e.RecheckFor = "w0" },
		"a command waits": func(t *testing.T, b *harness, _ *run.Ending) {
			b.command(t, session.CommandHibernate)
		},
		"the turn was to be aborted": func(t *testing.T, b *harness, _ *run.Ending) {
			b.command(t, session.CommandAbort)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.attended(t)
			runID := b.begin(t, b.submit(t, "second"))
			ending := run.Ending{RunID: runID, Token: "t1", Outcome: session.OutcomeCompleted, RecheckFor: "w1", Attend: "a2"}
			end(t, b, &ending)
			ended, err := b.RunEnd(b.ctx, ending)
			require.NoError(t, err)
			require.False(t, ended.Attended)
			b.submit(t, "third")
			require.Equal(t, run.Claimed{}, b.claimFor(t, "a2"))
		})
	}
}

// TestWorkflowReclaimsSessionBetweenTurns also checks that during a turn the workflow gets the run
// in progress, and the attendant continues.
func TestWorkflowReclaimsSessionBetweenTurns(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.attended(t)
	second := b.submit(t, "second")
	claimed := b.claimFor(t, "a1")
	third := b.submit(t, "third")
	b.command(t, session.CommandAbort)
	taken, err := b.SessionReclaim(b.ctx, b.id, "w1")
	require.NoError(t, err)
	require.Equal(t, &session.Processing{
		PromptID: second, Ordinal: 2, RunID: claimed.Start.Run.ID, Generation: 1, Dispatch: 1, OnUnknown: session.Hold,
	}, taken.Run)
	require.Equal(t, claimed.Start.Run.ID, taken.Commands[0].RunID)
	require.Equal(t, third, taken.Waiting[0].ID)
	_, err = b.RunEnd(b.ctx, run.Ending{RunID: claimed.Start.Run.ID, Token: "c1", Outcome: session.OutcomeCompleted, RecheckFor: "w1"})
	require.NoError(t, err)

	taken, err = b.SessionReclaim(b.ctx, b.id, "w1")
	require.NoError(t, err)
	require.Nil(t, taken.Run)
	s, err := b.SessionGet(b.ctx, b.id)
	require.NoError(t, err)
	require.Equal(t, s.LastActivity, taken.LastActivity)
}

// TestPromptIsClaimedOnceByItsAttendantOrItsWorkflow claims prompts from both concurrently and
// checks that each prompt has one run.
func TestPromptIsClaimedOnceByItsAttendantOrItsWorkflow(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.attended(t)
	byAttendant := 0
	for round := range 30 {
		prompt := b.submit(t, fmt.Sprint(round))
		var both sync.WaitGroup
		var claimed run.Claimed
		var verdict run.Verdict
		var claimErr, beginErr error
		mine, theirs := session.NewID(session.RunPrefix), session.NewID(session.RunPrefix)
		claim := func() {
			claimed, claimErr = b.RunClaim(b.ctx, run.Claim{
				SessionID: b.id, Attendant: "a1", Generation: 1, RunID: mine, Token: "c1", Attempt: 1,
			})
		}
		begin := func() { verdict, beginErr = b.RunBegin(b.ctx, b.id, prompt, theirs, 1) }
		for _, do := range []func(){claim, begin} {
			both.Go(do)
		}
		both.Wait()
		require.NoError(t, claimErr)
		require.NoError(t, beginErr)
		require.NotEqual(t, claimed.Start != nil, verdict.Granted, "exactly one has it")
		run, token := theirs, ""
		if claimed.Start != nil {
			run, token = claimed.Start.Run.ID, "c1"
			byAttendant++
			require.Equal(t, run, verdict.HeldBy)
		}
		p, err := b.PromptGet(b.ctx, b.id, prompt)
		require.NoError(t, err)
		require.Equal(t, run, p.RunID)
		require.True(t, b.end(t, run, token, "a1").Attended)
	}
	t.Logf("%d of 30 prompts were claimed by the attendant", byAttendant)
}

// TestPromptForAttendantIsSignalledLater checks that its submit requests no signal, and that a
// command that follows gets its own.
func TestPromptForAttendantIsSignalledLater(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.attended(t)
	submit := func() session.Prompt {
		p, _, _, err := b.PromptSubmit(b.ctx, session.Prompt{ID: session.NewID(session.PromptPrefix), SessionID: b.id, Content: "hello"})
		require.NoError(t, err)
		return p
	}
	unclaimed := func(prompts ...session.Prompt) []backlog.Unclaimed {
		var asked []backlog.Unclaimed
		for _, p := range prompts {
			asked = append(asked, backlog.Unclaimed{SessionID: b.id, PromptID: p.ID, Ordinal: p.Ordinal})
		}
		found, err := b.PromptsUnclaimed(b.ctx, append(asked, backlog.Unclaimed{SessionID: "ses_other", PromptID: "p"}))
		require.NoError(t, err)
		return found
	}
	first, second := submit(), submit()
	for _, p := range []session.Prompt{first, second} {
		require.True(t, p.Attended)
		require.False(t, p.Notify)
	}
	require.Equal(t, []backlog.Unclaimed{{SessionID: b.id, PromptID: first.ID, Ordinal: 2}, {SessionID: b.id, PromptID: second.ID, Ordinal: 3}}, unclaimed(first, second))
	claimed := b.claimFor(t, "a1")
	require.Empty(t, unclaimed(first, second), "the second waits for the turn of the first")
	third := submit()
	require.False(t, third.Attended || third.Notify, "prompts submitted during a turn are read at its end")
	require.True(t, b.end(t, claimed.Start.Run.ID, claimed.Start.Run.Token, "a1").Attended)
	require.Len(t, unclaimed(first, second), 1)

	done, err := b.CommandSubmit(b.ctx, session.Command{SessionID: b.id, Kind: session.CommandSync})
	require.NoError(t, err)
	require.True(t, done.Notify)
	_, err = b.SessionReclaim(b.ctx, b.id, "w1")
	require.NoError(t, err)
	p := submit()
	require.True(t, p.Notify, "without an attendant the workflow is signalled")
	require.False(t, p.Attended)
}

// TestRelaySignalsUnclaimedAttendedPrompt checks that an attendance does not prevent
// another signal for a prompt.
func TestRelaySignalsUnclaimedAttendedPrompt(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.attended(t)
	prompt := b.submit(t, "second")
	unclaimed, err := b.Unclaimed(b.ctx, "", -time.Minute, 10)
	require.NoError(t, err)
	require.Equal(t, []backlog.Unclaimed{{SessionID: b.id, PromptID: prompt, Ordinal: 2}}, unclaimed)
	require.NotNil(t, b.claimFor(t, "a1").Start)
	b.submit(t, "third")
	unclaimed, err = b.Unclaimed(b.ctx, "", -time.Minute, 10)
	require.NoError(t, err)
	require.Empty(t, unclaimed, "it waits for a turn")
}

// TestClaimUpdatesActivityUnlessPromptDid checks that a turn updates the index of activity
// twice, not three times.
func TestClaimUpdatesActivityUnlessPromptDid(t *testing.T) {
	t.Parallel()
	b := setup(t)
	conn, err := pgx.Connect(b.ctx, b.url)
	require.NoError(t, err)
	defer conn.Close(b.ctx)
	at := time.Now().UTC().Truncate(time.Microsecond)
	var seq int64
	require.NoError(t, conn.QueryRow(b.ctx, "UPDATE sessions SET last_activity_at = $2 WHERE id = $1 RETURNING last_seq", b.id, at).Scan(&seq))
	for _, step := range []struct{ after, want time.Duration }{
		{time.Second, 0},
		{time.Second + time.Microsecond, time.Second + time.Microsecond},
		{-time.Hour, time.Second + time.Microsecond},
	} {
		require.NoError(t, dbsqlc.New().SessionClaimed(b.ctx, conn, &dbsqlc.SessionClaimedParams{ID: b.id, LastSeq: seq, At: at.Add(step.after)}))
		s, err := b.SessionGet(b.ctx, b.id)
		require.NoError(t, err)
		require.Equal(t, at.Add(step.want), s.LastActivity.UTC(), "a claim %s after the last activity", step.after)
	}
}
