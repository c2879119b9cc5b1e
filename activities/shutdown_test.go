package activities_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/activities"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// TestShutdownRefusesNewActivities checks that no prompt gets a run, and no sleeping session a
// sandbox.
func TestShutdownRefusesNewActivities(t *testing.T) {
	t.Parallel()
	b := setupMemory(t)
	b.config.Shutdown = new(activities.Shutdown)
	b.build()
	b.create(t)
	b.awake(t)
	p, _, _, err := b.db.PromptSubmit(b.ctx, session.Prompt{ID: session.NewID(session.PromptPrefix), SessionID: b.id, Content: "late"})
	require.NoError(t, err)
	b.config.Shutdown.Begin()

	claim := activities.ClaimRequest{SessionID: b.id, PromptID: p.ID, RunID: session.NewID(session.RunPrefix), Generation: 1}
	_, err = do(b, attempt{}, b.control.BeginRun, claim)
	require.Equal(t, activities.Fenced, activities.TypeOf(err), "%v", err)
	s, err := b.db.SessionGet(b.ctx, b.id)
	require.NoError(t, err)
	require.Len(t, s.Pending, 1)
	require.Equal(t, session.CommandHibernate, s.Pending[0].Kind)
	require.Equal(t, session.ReasonShutdown, s.Pending[0].Reason)

	record := plain(b.control.RecordTransition)
	step := session.Transition{SessionID: b.id, No: s.TransitionNo + 1, From: session.Hibernated, To: session.Restoring, Event: session.EventWake, Generation: 1}
	_, err = do(b, attempt{}, record, step)
	require.Equal(t, activities.HandOver, activities.TypeOf(err), "%v", err)
	require.False(t, activities.IsFinal(err), "another worker records it")
	step.From, step.To, step.Event, step.Reason = session.Running, session.Hibernating, session.EventHibernate, session.ReasonShutdown
	_, err = do(b, attempt{}, record, step)
	require.NoError(t, err, "sessions may go to sleep")

	ctx, cancel := context.WithCancel(b.ctx)
	cancel()
	_, err = do(b, attempt{ctx: ctx}, b.control.CreateSandbox, activities.SandboxRequest{SessionID: b.id, Generation: 2})
	require.Equal(t, activities.HandOver, activities.TypeOf(err), "%v", err)
}
