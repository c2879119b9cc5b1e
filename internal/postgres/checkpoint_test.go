package postgres_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/checkpoint"
	"github.com/overwinter-dev/overwinter/internal/event"
	"github.com/overwinter-dev/overwinter/internal/run"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// ended ends a run with a request to attend the session, and returns the commands that are then
// pending.
func (b *harness) ended(t *testing.T, outcome session.Outcome) (commands []session.Command, attended bool) {
	t.Helper()
	runID := b.begin(t, b.submit(t, "x"))
	got, err := b.RunEnd(b.ctx, run.Ending{RunID: runID, Token: "t1", Outcome: outcome, RecheckFor: "w1", Attend: "t1"})
	require.NoError(t, err)
	return got.Look.Commands, got.Attended
}

func (b *harness) policy(t *testing.T, c checkpoint.Policy) {
	t.Helper()
	_, err := b.SessionPatch(b.ctx, b.id, session.Patch{Options: &session.Options{Checkpoint: c}})
	require.NoError(t, err)
}

// deadlines returns the kinds of deadlines that the session's log announces. The announcement of a
// checkpoint comes right before its command.
func (b *harness) deadlines(t *testing.T) []string {
	t.Helper()
	var kinds []string
	log := b.events(t)
	for i, e := range log {
		if e.Type != event.TypeDeadline {
			continue
		}
		var d event.DeadlineData
		require.NoError(t, json.Unmarshal(e.Data, &d))
		kinds = append(kinds, string(d.Kind))
		require.Equal(t, event.TypeCommand, log[i+1].Type)
	}
	return kinds
}

func TestTurnEndRequestsCheckpoint(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, err := b.SessionOpen(b.ctx, b.id, "w1")
	require.NoError(t, err)
	b.running(t)
	commands, _ := b.ended(t, session.OutcomeCompleted)
	require.Empty(t, commands, "the default saves when the session hibernates")

	b.policy(t, checkpoint.Turn)
	commands, attended := b.ended(t, session.OutcomeFailed)
	require.Len(t, commands, 1)
	require.Equal(t, session.CommandSync, commands[0].Kind)
	require.Equal(t, session.ReasonCheckpoint, commands[0].Reason)
	require.False(t, attended, "no prompt is claimed before it is saved")
	next := b.submit(t, "y")
	_, err = b.RunBegin(b.ctx, b.id, next, session.NewID(session.RunPrefix), 1)
	require.ErrorContains(t, err, "a pending sync comes first")
	require.NoError(t, b.CommandEnd(b.ctx, b.id, commands[0].ID, session.CommandApplied, ""))
	runID := b.begin(t, next)

	// A session that is about to hibernate saves a bundle anyway.
	_, err = b.CommandSubmit(b.ctx, session.Command{SessionID: b.id, Kind: session.CommandHibernate})
	require.NoError(t, err)
	got, err := b.RunEnd(b.ctx, run.Ending{RunID: runID, Token: "t1", Outcome: session.OutcomeCompleted, RecheckFor: "w1"})
	require.NoError(t, err)
	require.Len(t, got.Look.Commands, 1)
	require.Equal(t, session.CommandHibernate, got.Look.Commands[0].Kind)
}

func TestRunWithoutSandboxRequestsNoCheckpoint(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.running(t)
	b.policy(t, checkpoint.Turn)
	runID := b.begin(t, b.submit(t, "x"))
	got, err := b.RunEnd(b.ctx, run.Ending{RunID: runID, Outcome: session.OutcomeUnknown, RecheckFor: "w1"})
	require.NoError(t, err)
	require.Empty(t, got.Look.Commands)
}

func TestCheckpointFollowsPolicyOfInstallation(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, err := b.SessionOpen(b.ctx, b.id, "w1")
	require.NoError(t, err)
	b.running(t)
	require.NoError(t, b.BundlesConfigure(b.ctx, 10, "1h0m0s"))
	commands, _ := b.ended(t, session.OutcomeCompleted)
	require.Len(t, commands, 1, "there is no bundle")
	require.Equal(t, []string{"checkpoint"}, b.deadlines(t))
	require.NoError(t, b.CommandEnd(b.ctx, b.id, commands[0].ID, session.CommandApplied, ""))
	b.commit(t, "im-1")
	commands, _ = b.ended(t, session.OutcomeCompleted)
	require.Empty(t, commands, "the last one is young")
	require.Len(t, b.deadlines(t), 1, "a failed save is not announced")
	b.sql(t, "UPDATE bundles SET created_at = now() - interval '61 minutes'")
	commands, _ = b.ended(t, session.OutcomeCompleted)
	require.Len(t, commands, 1)
	require.NoError(t, b.CommandEnd(b.ctx, b.id, commands[0].ID, session.CommandApplied, ""))
	b.policy(t, checkpoint.Hibernate)
	commands, _ = b.ended(t, session.OutcomeCompleted)
	require.Empty(t, commands, "the session's own policy counts")
	require.Equal(t, []string{"checkpoint", "checkpoint"}, b.deadlines(t))
}
