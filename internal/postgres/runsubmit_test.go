package postgres_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/eventlog"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/postgres/postgrestest"
	"github.com/overwinter-dev/overwinter/internal/run"
	"github.com/overwinter-dev/overwinter/internal/session"
	"github.com/overwinter-dev/overwinter/internal/usage"
)

func (b *harness) request() run.Request {
	return run.Request{
		Prompt:      session.Prompt{ID: session.NewID(session.PromptPrefix), Content: "work"},
		BaseSession: b.id, SessionID: session.NewID(session.SessionPrefix),
	}
}

// start submits a run and returns it, with its prompt.
func (b *harness) start(t *testing.T, r run.Request) run.View {
	t.Helper()
	v, p, created, err := b.RunSubmit(b.ctx, r, session.Idempotency{})
	require.NoError(t, err)
	require.True(t, created)
	require.Equal(t, p.ID, v.PromptID)
	require.Equal(t, session.PromptQueued, v.Status)
	return v
}

// claimed claims a prompt for its allotted run, and attaches an attempt with the token "t1".
func (b *harness) claimed(t *testing.T, promptID string) string {
	t.Helper()
	v, err := b.RunBeginAllotted(b.ctx, b.id, promptID, session.NewID(session.RunPrefix), b.generation(t))
	require.NoError(t, err)
	require.True(t, v.Granted, "verdict: %+v", v)
	_, err = b.RunAttach(b.ctx, v.RunID, "t1", run.Dispatch{No: 1, Attempt: 1}, nil)
	require.NoError(t, err)
	return v.RunID
}

func (b *harness) finish(t *testing.T, runID string, outcome session.Outcome) {
	t.Helper()
	_, err := b.RunEnd(b.ctx, run.Ending{RunID: runID, Token: "t1", Outcome: outcome, Usage: usage.Usage{InputTokens: 7}, Model: "m"})
	require.NoError(t, err)
}

func (b *harness) runShow(t *testing.T, id string) run.View {
	t.Helper()
	v, err := b.RunShow(b.ctx, id)
	require.NoError(t, err)
	return v
}

func TestRunContinuesSession(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, err := b.SessionOpen(b.ctx, b.id, "w1")
	require.NoError(t, err)
	b.running(t)
	b.turn(t, "one", session.OutcomeCompleted)
	one := b.snapshotted(t, "im-1")

	run := b.start(t, b.request())
	require.Equal(t, b.id, run.SessionID)
	require.Equal(t, b.id, run.BaseSession)
	require.Equal(t, one.ID, run.BaseBundle, "the session is at its newest bundle")
	require.False(t, run.Forked())
	claim := b.claimed(t, run.PromptID)
	require.Equal(t, run.ID, claim, "its first claim has the id of the run")
	b.say(t, claim, "two")
	b.finish(t, claim, session.OutcomeCompleted)
	got := b.runShow(t, run.ID)
	require.Equal(t, session.PromptCompleted, got.Status)
	require.Equal(t, 1, got.Attempts)
	require.EqualValues(t, 7, got.Usage.InputTokens)
	require.Equal(t, "m", got.Usage.Model)
	require.Empty(t, got.BundleID)
	require.Equal(t, []session.CommandKind{session.CommandSync}, b.pending(t), "its work is to be saved")
	two := b.snapshotted(t, "im-2")
	require.Equal(t, two.ID, b.runShow(t, run.ID).BundleID)
	require.Equal(t, one.ID, b.show(t, one.ID).ID, "the base is as it was")

	// Without a turn in between, the session is at the second bundle. A failed run saves no bundle,
	// and afterwards the session is at no bundle.
	commands, err := b.SessionLook(b.ctx, b.id, "w1")
	require.NoError(t, err)
	require.NoError(t, b.CommandEnd(b.ctx, b.id, commands.Commands[0].ID, session.CommandApplied, ""))
	failed := b.start(t, b.request())
	require.Equal(t, two.ID, failed.BaseBundle)
	b.finish(t, b.claimed(t, failed.PromptID), session.OutcomeFailed)
	require.Empty(t, b.pending(t))
	b.snapshotted(t, "im-3")
	require.Empty(t, b.runShow(t, failed.ID).BundleID)
	b.turn(t, "three", session.OutcomeCompleted)
	require.Empty(t, b.start(t, b.request()).BaseBundle)
}

func TestOneOfManyRunsOnHeadIsAccepted(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.running(t)
	b.turn(t, "one", session.OutcomeCompleted)
	one := b.snapshotted(t, "im-1")
	const many = 12
	errs := make([]error, many)
	var wait sync.WaitGroup
	for i := range many {
		wait.Go(func() {
			r := b.request()
			if i%2 == 0 {
				r.BaseSession, r.BaseBundle = "", one.ID
			}
			_, _, _, errs[i] = b.RunSubmit(b.ctx, r, session.Idempotency{})
		})
	}
	wait.Wait()
	accepted := 0
	for _, err := range errs {
		if err == nil {
			accepted++
			continue
		}
		requireCode(t, failure.RunUnfinished, err)
	}
	require.Equal(t, 1, accepted)
	s, err := b.SessionGet(b.ctx, b.id)
	require.NoError(t, err)
	require.EqualValues(t, 1, s.Queue.Queued)
	runs, _, err := b.RunList(b.ctx, run.Filter{SessionID: b.id, Status: session.PromptQueued})
	require.NoError(t, err)
	b.claimed(t, runs[0].PromptID)
	late := b.request()
	late.BaseSession, late.BaseBundle = "", one.ID
	_, _, _, err = b.RunSubmit(b.ctx, late, session.Idempotency{})
	requireCode(t, failure.RunUnfinished, err) // although a turn has begun after the bundle
	b.submit(t, "a prompt waits instead")

	// With fork each run has its own session.
	r := b.request()
	r.Fork = true
	forked := b.start(t, r)
	require.True(t, forked.Forked())
	require.Equal(t, r.SessionID, forked.SessionID)
	require.Equal(t, one.ID, forked.BaseBundle)
	require.Equal(t, b.id, forked.BaseSession)
	s, err = b.SessionGet(b.ctx, forked.SessionID)
	require.NoError(t, err)
	require.Equal(t, session.Hibernated, s.Status)
	require.Equal(t, one.ID, s.Fork.BundleID)
}

func TestRunAtOlderBundleForks(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.running(t)
	first, _ := b.turn(t, "one", session.OutcomeCompleted)
	one := b.snapshotted(t, "im-1")
	at := b.request()
	at.BaseSession, at.BaseBundle = "", one.ID

	b.turn(t, "two", session.OutcomeCompleted)
	v := b.start(t, at)
	require.True(t, v.Forked(), "a turn came after the bundle, which is the newest")
	b.snapshotted(t, "im-2")
	at.Prompt.ID, at.SessionID = session.NewID(session.PromptPrefix), session.NewID(session.SessionPrefix)
	require.True(t, b.start(t, at).Forked(), "it is not the newest")

	three := b.snapshotted(t, "im-3")
	b.sql(t, "UPDATE blocks SET removed = true, removed_seq = $2 WHERE session_id = $1", b.id, b.position(t)+1)
	at.BaseBundle, at.Prompt.ID, at.SessionID = three.ID, session.NewID(session.PromptPrefix), session.NewID(session.SessionPrefix)
	require.True(t, b.start(t, at).Forked(), "the session was reverted after it")
	require.NotEmpty(t, first)

	missing := b.request()
	missing.BaseSession, missing.BaseBundle = "", session.NewID(session.BundlePrefix)
	_, _, _, err := b.RunSubmit(b.ctx, missing, session.Idempotency{})
	requireCode(t, failure.NoBundle, err)
	missing.BaseBundle, missing.BaseSession = "", session.NewID(session.SessionPrefix)
	_, _, _, err = b.RunSubmit(b.ctx, missing, session.Idempotency{})
	requireCode(t, failure.NoSession, err)
	missing.Fork = true
	_, _, _, err = b.RunSubmit(b.ctx, missing, session.Idempotency{})
	requireCode(t, failure.NoSession, err)
	missing.BaseSession = b.session(t)
	_, _, _, err = b.RunSubmit(b.ctx, missing, session.Idempotency{})
	requireCode(t, failure.NoBundleThere, err)
}

func TestRunIsStartedOnceByKey(t *testing.T) {
	t.Parallel()
	for _, fork := range []bool{false, true} {
		t.Run(fmt.Sprint(fork), func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.running(t)
			b.turn(t, "one", session.OutcomeCompleted)
			b.snapshotted(t, "im-1")
			idem := session.Idempotency{Key: "k", Digest: "d"}
			ids := make([]string, 8)
			var wait sync.WaitGroup
			for i := range ids {
				wait.Go(func() {
					r := b.request()
					r.Fork = fork
					v, _, _, err := b.RunSubmit(b.ctx, r, idem)
					if err == nil {
						ids[i] = v.ID
					}
				})
			}
			wait.Wait()
			for _, id := range ids {
				require.Equal(t, ids[0], id)
			}
			require.NotEmpty(t, ids[0])
			found, _, err := b.RunList(b.ctx, run.Filter{})
			require.NoError(t, err)
			require.Len(t, found, 2, "the run, and the prompt before it")
			_, _, _, err = b.RunSubmit(b.ctx, b.request(), session.Idempotency{Key: "k", Digest: "other"})
			requireCode(t, failure.Idempotency, err)

			// Also after it has ended and its base has changed.
			v := b.runShow(t, ids[0])
			_, err = b.PromptWithdraw(b.ctx, v.SessionID, v.PromptID)
			require.NoError(t, err)
			again, _, created, err := b.RunSubmit(b.ctx, b.request(), idem)
			require.NoError(t, err)
			require.False(t, created)
			require.Equal(t, v.ID, again.ID)
			require.Equal(t, session.PromptCancelled, again.Status)
		})
	}
}

func TestRunKeepsItsIDThroughRequeueAndRetry(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.running(t)
	view := b.start(t, b.request())
	proposed := session.NewID(session.RunPrefix)
	v, err := b.RunBeginAllotted(b.ctx, b.id, view.PromptID, proposed, 1)
	require.NoError(t, err)
	require.Equal(t, view.ID, v.RunID)
	again, err := b.RunBeginAllotted(b.ctx, b.id, view.PromptID, proposed, 1)
	require.NoError(t, err)
	require.Equal(t, v, again, "the answer to the claim was lost")
	other, err := b.RunBeginAllotted(b.ctx, b.id, view.PromptID, session.NewID(session.RunPrefix), 1)
	require.NoError(t, err)
	require.False(t, other.Granted)
	require.Equal(t, view.ID, other.HeldBy)

	returned, err := b.RunReturn(b.ctx, view.ID, session.ReasonSandboxLost, false)
	require.NoError(t, err)
	require.True(t, returned)
	require.Equal(t, session.PromptQueued, b.runShow(t, view.ID).Status)
	_, err = b.RunBeginAllotted(b.ctx, b.id, view.PromptID, proposed, 1)
	requireCode(t, failure.IllegalState, err) // a late claim that was granted before

	claim := b.claimed(t, view.PromptID)
	require.Equal(t, session.ClaimID(view.ID, 2), claim)
	require.NoError(t, b.appendOne(t, eventlog.Append{
		SessionID: b.id, RunID: claim, Generation: 1, Token: "t1", LastFrame: 0, Events: []eventlog.Draft{draft("metadata_update", 0, 0, `{}`)},
	}))
	_, err = b.CommandSubmit(b.ctx, session.Command{SessionID: b.id, Kind: session.CommandAbort, RunID: view.ID})
	require.NoError(t, err)
	_, err = b.RunEnd(b.ctx, run.Ending{RunID: claim, Outcome: session.OutcomeUnknown, Reason: "x"})
	require.NoError(t, err)
	got := b.runShow(t, view.ID)
	require.Equal(t, session.PromptCancelled, got.Status, "the abort that names the run is for its newest claim")
	require.Equal(t, 2, got.Attempts)
	p, err := b.PromptGet(b.ctx, b.id, view.PromptID)
	require.NoError(t, err)
	require.Equal(t, view.ID, p.Run())
	turns := 0
	for _, e := range b.events(t) {
		if e.RunID != "" {
			require.Equal(t, view.ID, e.RunID, "%s", e.Type)
		}
		if e.Type == "turn_start" {
			turns++
			require.Contains(t, string(e.Data), `"`+view.ID+`"`)
		}
		require.NotContains(t, string(e.Data), claim)
	}
	require.Equal(t, 2, turns)

	// A retry by a person, repeated after the prompt has become unknown again.
	second := b.start(t, b.request())
	b.loses(t, second.PromptID)
	retry := session.Resolve{SessionID: b.id, PromptID: second.PromptID, Action: session.ResolutionRetry, RunID: second.ID, Attempt: 1}
	_, changed, err := b.PromptResolve(b.ctx, retry)
	require.NoError(t, err)
	require.True(t, changed)
	b.loses(t, second.PromptID)
	_, changed, err = b.PromptResolve(b.ctx, retry)
	require.NoError(t, err)
	require.False(t, changed)
	retry.Attempt = 2
	_, changed, err = b.PromptResolve(b.ctx, retry)
	require.NoError(t, err)
	require.True(t, changed)
	require.Equal(t, second.ID, b.runShow(t, second.ID).ID)
	b.finish(t, b.claimed(t, second.PromptID), session.OutcomeCompleted)
	require.Equal(t, 3, b.runShow(t, second.ID).Attempts)
	retry.Attempt = 3
	_, _, err = b.PromptResolve(b.ctx, retry)
	require.NoError(t, err, "it was retried already")
	require.Equal(t, session.PromptCompleted, b.runShow(t, second.ID).Status, "an outcome stays")
}

func (b *harness) loses(t *testing.T, promptID string) {
	t.Helper()
	_, err := b.RunEnd(b.ctx, run.Ending{RunID: b.claimed(t, promptID), Outcome: session.OutcomeUnknown})
	require.NoError(t, err)
}

func TestWorkerOfPreviousReleaseClaimsRun(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.running(t)
	view := b.start(t, b.request())
	theirs := b.begin(t, view.PromptID)
	b.finish(t, theirs, session.OutcomeCompleted)
	got := b.runShow(t, view.ID)
	require.Equal(t, session.PromptCompleted, got.Status)
	require.Equal(t, view.ID, got.ID)
	require.Equal(t, view.ID, b.runShow(t, theirs).ID, "it is found by its claim too")

	// A prompt that an api of that release has stored has a run, and is listed.
	b.sql(t, `INSERT INTO prompts (session_id, id, ordinal, status, content, mode, on_unknown, author, created_at)
		VALUES ($1, 'old', 2, 'queued', 'x', 'followup', 'hold', '', now())`, b.id)
	items, _, err := b.RunList(b.ctx, run.Filter{SessionID: b.id})
	require.NoError(t, err)
	require.Len(t, items, 2)
	require.Equal(t, "old", items[0].PromptID, "ids are ordered by time")
	require.True(t, session.ValidID(session.RunPrefix, items[0].ID), items[0].ID)
}

func TestRunsOfEarlierReleaseAreFound(t *testing.T) {
	t.Parallel()
	url := postgrestest.FileURL(t, "testdata/schema6.sql")
	b := &harness{DB: postgrestest.Open(t, url), url: url, ctx: t.Context()}
	require.NoError(t, b.Migrate(b.ctx))
	b.id = fmt.Sprintf("ses_%032x", 2)
	old := fmt.Sprintf("run_%030x02", 2)
	got := b.runShow(t, old)
	require.Equal(t, old, got.ID)
	require.Equal(t, session.PromptProcessing, got.Status)
	requireCode(t, failure.RunUnfinished, func() error {
		_, _, _, err := b.RunSubmit(b.ctx, b.request(), session.Idempotency{})
		return err
	}())
	_, err := b.RunAttach(b.ctx, old, "t1", run.Dispatch{No: 9, Attempt: 1}, nil)
	require.NoError(t, err)
	b.finish(t, old, session.OutcomeCompleted)
	require.Equal(t, session.PromptCompleted, b.runShow(t, old).Status)
}

func TestRunsAreListedInPages(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.running(t)
	var want []string
	for range 5 {
		run := b.start(t, b.request())
		b.finish(t, b.claimed(t, run.PromptID), session.OutcomeFailed)
		want = append([]string{run.ID}, want...)
	}
	one := b.id
	b.id = b.session(t)
	waits := b.start(t, b.request())
	read := func(f run.Filter) (got []string) {
		t.Helper()
		for range 20 {
			items, next, err := b.RunList(b.ctx, f)
			require.NoError(t, err)
			require.LessOrEqual(t, len(items), max(f.Limit, 1)+50)
			for _, v := range items {
				got = append(got, v.ID)
			}
			if f.Cursor = next; next == "" {
				return got
			}
		}
		require.Fail(t, "the list does not end")
		return nil
	}
	require.Equal(t, append([]string{waits.ID}, want...), read(run.Filter{Limit: 2}))
	require.Equal(t, want, read(run.Filter{Limit: 2, SessionID: one}))
	require.Equal(t, []string{waits.ID}, read(run.Filter{Status: session.PromptQueued}))
	require.Empty(t, read(run.Filter{Agent: "codex"}))
	require.Len(t, read(run.Filter{Agent: "demo", Status: session.PromptFailed, Limit: 1}), 5)
	_, _, err := b.RunList(b.ctx, run.Filter{SessionID: session.NewID(session.SessionPrefix)})
	requireCode(t, failure.NoSession, err)
	_, _, err = b.RunList(b.ctx, run.Filter{Cursor: "?"})
	requireCode(t, failure.Invalid, err)
	_, err = b.RunShow(b.ctx, session.NewID(session.RunPrefix))
	requireCode(t, failure.NoRun, err)
}
