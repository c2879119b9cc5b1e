package postgres_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/backlog"
	"github.com/overwinter-dev/overwinter/internal/run"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// TestRunInterruptedByShutdown checks that the run ends with the reason shutdown, and that its
// prompt runs again only if that is its policy for an unknown outcome.
func TestRunInterruptedByShutdown(t *testing.T) {
	t.Parallel()
	b := setup(t)
	stop := func(c *session.Command) { c.Force, c.Reason = true, session.ReasonShutdown }
	aborted := run.Ending{Outcome: session.OutcomeCancelled, Reason: session.ReasonAborted}
	for name, c := range map[string]struct {
		policy  session.OnUnknown
		command func(*harness, string)
		ending  run.Ending
		want    session.Prompt
	}{
		"by default": {
			session.Hold, func(b *harness, _ string) { b.command(t, session.CommandHibernate, stop) }, aborted,
			session.Prompt{Status: session.PromptCancelled, Reason: session.ReasonShutdown},
		},
		"to be run again": {
			session.Retry, func(b *harness, _ string) { b.command(t, session.CommandHibernate, stop) }, aborted,
			session.Prompt{Status: session.PromptQueued},
		},
		"after a client's hibernate": {
			session.Hold, func(b *harness, _ string) {
				b.command(t, session.CommandHibernate)
				b.command(t, session.CommandHibernate, stop)
			}, aborted,
			session.Prompt{Status: session.PromptCancelled, Reason: session.ReasonShutdown},
		},
		"a client aborts it too": {
			session.Retry, func(b *harness, run string) {
				b.command(t, session.CommandHibernate, stop)
				b.command(t, session.CommandAbort, func(c *session.Command) { c.RunID = run })
			}, aborted,
			session.Prompt{Status: session.PromptCancelled, Reason: session.ReasonAborted},
		},
		"it completes": {
			session.Retry, func(b *harness, _ string) { b.command(t, session.CommandHibernate, stop) },
			run.Ending{Outcome: session.OutcomeCompleted},
			session.Prompt{Status: session.PromptCompleted},
		},
		"a client's forced hibernate": {
			session.Retry, func(b *harness, _ string) { b.command(t, session.CommandHibernate, forced) }, aborted,
			session.Prompt{Status: session.PromptCancelled, Reason: session.ReasonAborted},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := &harness{DB: b.DB, url: b.url, ctx: t.Context()}
			b.id = b.session(t)
			b.running(t)
			p, _, _, err := b.PromptSubmit(b.ctx, session.Prompt{ID: session.NewID(session.PromptPrefix), SessionID: b.id, Content: "x", OnUnknown: c.policy})
			require.NoError(t, err)
			run := b.begin(t, p.ID)
			c.command(b, run)
			c.ending.RunID, c.ending.RecheckFor = run, "w1"
			ended, err := b.RunEnd(b.ctx, c.ending)
			require.NoError(t, err)
			require.Equal(t, c.ending.Outcome, ended.Outcome)
			got, err := b.PromptGet(b.ctx, b.id, p.ID)
			require.NoError(t, err)
			require.Equal(t, c.want, session.Prompt{Status: got.Status, Reason: got.Reason})
		})
	}
}

func TestAwakeSessionsAreListed(t *testing.T) {
	t.Parallel()
	b := setup(t) // initializing
	asleep := &harness{DB: b.DB, url: b.url, ctx: b.ctx}
	asleep.id = asleep.session(t)
	asleep.running(t)
	asleep.transit(t, session.EventHibernate, session.ReasonIdle)
	awake := func() []backlog.Awake {
		t.Helper()
		list, err := b.Awake(b.ctx)
		require.NoError(t, err)
		return list
	}
	require.Equal(t, []backlog.Awake{{SessionID: asleep.id, Status: session.Hibernating}}, awake())
	asleep.commit(t, "im-2")
	asleep.transit(t, session.EventSaved, session.ReasonIdle)
	require.Empty(t, awake())
	b.running(t)
	run := b.begin(t, b.submit(t, "1"))
	require.Equal(t, []backlog.Awake{{SessionID: b.id, Status: session.Running, RunID: run}}, awake())
}
