package postgres_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/backlog"
	"github.com/overwinter-dev/overwinter/internal/run"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// TestRunEndReportsPendingWork checks that RunEnd returns prompts and commands that were submitted
// during a run, like SessionLook, and that the abort of the run has ended by then.
func TestRunEndReportsPendingWork(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.running(t)
	runID := b.begin(t, b.submit(t, "first"))
	second := b.submit(t, "second")
	for _, kind := range []session.CommandKind{session.CommandHibernate, session.CommandAbort} {
		_, err := b.CommandSubmit(b.ctx, session.Command{SessionID: b.id, Kind: kind})
		require.NoError(t, err)
	}
	ending := run.Ending{RunID: runID, Token: "t1", Outcome: session.OutcomeCompleted, RecheckFor: "workflow-1"}
	ended, err := b.RunEnd(b.ctx, ending)
	require.NoError(t, err)
	require.NotNil(t, ended.Look)
	require.Equal(t, session.DefaultIdleTimeout, ended.Look.IdleTimeout)
	require.EqualValues(t, 1, ended.Look.Queued)
	require.Equal(t, second, ended.Look.Waiting[0].ID)
	require.Len(t, ended.Look.Commands, 1)
	require.Equal(t, session.CommandHibernate, ended.Look.Commands[0].Kind)

	// The work counts as read by that workflow run, and no signal is outstanding.
	overdue, err := b.CommandsOverdue(b.ctx, -time.Hour, 10)
	require.NoError(t, err)
	require.Equal(t, []backlog.Overdue{{SessionID: b.id, HeardBy: "workflow-1"}}, overdue)

	// Another attempt that ends the run again gets none of it: the workflow reads it itself.
	ended, err = b.RunEnd(b.ctx, ending)
	require.NoError(t, err)
	require.Nil(t, ended.Look)
}
