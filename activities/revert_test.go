package activities_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/activities"
	"github.com/overwinter-dev/overwinter/internal/eventlog"
	"github.com/overwinter-dev/overwinter/internal/session"
)

func (b *harness) revert(s activities.SandboxReady, promptID string) error {
	_, err := do(b, attempt{}, plain(b.control.RevertSession), activities.RevertRequest{
		SessionID: b.id, Generation: s.Generation, SandboxID: s.SandboxID, PromptID: promptID,
	})
	return err
}

// TestRevertResumesAfterFailedAttempt makes the first attempt lose its store after it has rewritten
// the agent's memory. The next attempt finds the memory rewritten and does the rest.
func TestRevertResumesAfterFailedAttempt(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ready := b.create(t)
	for _, content := range []string{"the first thing", "the second thing"} {
		in := b.claim(t, ready, content)
		_, err := b.turn(in)
		require.NoError(t, err)
	}
	prompts, _, err := b.db.PromptList(b.ctx, b.id, 0, "")
	require.NoError(t, err)
	b.steps.set(func(step string, _ *eventlog.Append) error {
		if step == stepRevert {
			return errInjected
		}
		return nil
	}, nil)
	require.Error(t, b.revert(ready, prompts[1].ID))
	b.steps.set(nil, nil)
	require.NoError(t, b.revert(ready, prompts[1].ID))
	require.NoError(t, b.revert(ready, prompts[1].ID), "and again")

	conversation, _, err := b.db.ConversationPage(b.ctx, b.id, 0, "")
	require.NoError(t, err)
	require.Len(t, conversation.Threads[0].Blocks, 2, "the first prompt and its answer")
	second, err := b.db.PromptGet(b.ctx, b.id, prompts[1].ID)
	require.NoError(t, err)
	require.Equal(t, session.ReasonReverted, second.Reason)
	in := b.claim(t, ready, "recall")
	_, err = b.turn(in)
	require.NoError(t, err)
	require.Contains(t, b.output(t, in.RunID), "2 prompts")

	require.Equal(t, activities.Refused, activities.TypeOf(b.revert(ready, "nobody")))
}

// TestRevertDoesNotAffectRunningTurn covers a revert whose requesting workflow is not the one that
// runs the turn.
func TestRevertDoesNotAffectRunningTurn(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ready := b.create(t)
	first := b.claim(t, ready, "the first thing")
	_, err := b.turn(first)
	require.NoError(t, err)
	in := b.claim(t, ready, "the second thing")
	requireType(t, activities.Fenced, b.revert(ready, first.PromptID))
	result, err := b.turn(in)
	require.NoError(t, err)
	require.Equal(t, session.OutcomeCompleted, result.Outcome)
}
