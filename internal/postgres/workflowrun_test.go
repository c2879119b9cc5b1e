package postgres_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/backlog"
	"github.com/overwinter-dev/overwinter/internal/bundle"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/run"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// TestOnlyNewestWorkflowRunMayRecord: a reset of the workflow creates another
// run, which replays old decisions of the previous run. Its writes are refused until it has read
// the session, and later writes of the previous run are refused after that.
func TestOnlyNewestWorkflowRunMayRecord(t *testing.T) {
	t.Parallel()
	b := setup(t)
	first, second := session.WithWorkflowRun(b.ctx, "w1"), session.WithWorkflowRun(b.ctx, "w2")
	require.NoError(t, b.SessionClose(first, b.id), "no workflow has opened it")
	_, err := b.SessionOpen(first, b.id, "w1")
	require.NoError(t, err)
	b.running(t)
	replayed := b.next(t, session.EventHibernate, session.ReasonIdle)
	require.NoError(t, b.TransitionRecord(first, replayed))
	require.NoError(t, b.TransitionRecord(first, replayed), "its own repeat changes nothing")
	b.transit(t, session.EventSaved, "")
	b.transit(t, session.EventWake, "")
	b.reserve(t, 2)
	b.transit(t, session.EventReady, "")
	prompt := b.submit(t, "hello")
	runID := b.begin(t, prompt)
	command := b.command(t, session.CommandSync).Command
	before := b.position(t)

	records := map[string]func(session.Transition) error{
		"RunBegin": func(session.Transition) error {
			_, err := b.RunBegin(second, b.id, prompt, session.NewID(session.RunPrefix), 2)
			return err
		},
		"TransitionRecord": func(session.Transition) error { return b.TransitionRecord(second, replayed) },
		"the next TransitionRecord": func(next session.Transition) error {
			return b.TransitionRecord(second, next)
		},
		"RunEnd": func(session.Transition) error {
			_, err := b.RunEnd(second, run.Ending{RunID: runID, Outcome: session.OutcomeUnknown})
			return err
		},
		"RunFence":  func(session.Transition) error { _, err := b.RunFence(second, runID, "t2"); return err },
		"RunReturn": func(session.Transition) error { _, err := b.RunReturn(second, runID, "again", true); return err },
		"CommandEnd": func(session.Transition) error {
			return b.CommandEnd(second, b.id, command.ID, session.CommandApplied, "")
		},
		"CommandSubmit": func(session.Transition) error {
			_, err := b.CommandSubmit(second, session.Command{SessionID: b.id, Kind: session.CommandStop})
			return err
		},
		"SessionLook": func(session.Transition) error { _, err := b.SessionLook(second, b.id, "w2"); return err },
		"RunClaim": func(session.Transition) error {
			_, err := b.RunClaim(second, run.Claim{SessionID: b.id, Attendant: "a1", Generation: 2, RunID: session.NewID(session.RunPrefix), Token: "t3"})
			return err
		},
		"AttendantLeave":    func(session.Transition) error { _, err := b.AttendantLeave(second, b.id, "a1", "w2"); return err },
		"SessionReclaim":    func(session.Transition) error { _, err := b.SessionReclaim(second, b.id, "w2"); return err },
		"SessionClose":      func(session.Transition) error { return b.SessionClose(second, b.id) },
		"ProblemReport":     func(session.Transition) error { return b.ProblemReport(second, b.id, "code", "words") },
		"PromptsCancel":     func(session.Transition) error { _, err := b.PromptsCancel(second, b.id, "stop"); return err },
		"PromptRequeue":     func(session.Transition) error { return b.PromptRequeue(second, b.id, prompt) },
		"GenerationReserve": func(session.Transition) error { return b.GenerationReserve(second, b.id, 3, "im-1") },
		"SandboxRecord": func(session.Transition) error {
			return b.SandboxRecord(second, b.id, 2, "sb-2", session.SandboxReady, time.Now())
		},
		"SandboxEnd": func(session.Transition) error { return b.SandboxEnd(second, b.id, 2, "released") },
		"BundleCommit": func(session.Transition) error {
			return b.BundleCommit(second, bundle.Bundle{ID: session.NewID(session.BundlePrefix), SessionID: b.id, Generation: 2})
		},
		"WorkflowCheck": func(session.Transition) error { return b.WorkflowCheck(second, b.id) },
	}
	next := session.Transition{
		SessionID: b.id, No: replayed.No + 4, From: session.Running, To: session.Error, Event: session.EventFail, Generation: 2, At: time.Now(),
	}
	for name, record := range records {
		err := record(next)
		require.Equal(t, failure.StaleWorkflow, failure.CodeOf(err), "%s: %v", name, err)
	}
	require.Equal(t, before, b.position(t), "a refused record leaves no event")
	require.NoError(t, b.WorkflowCheck(first, b.id))
	require.NoError(t, b.WorkflowCheck(b.ctx, b.id), "no workflow asks")

	_, err = b.SessionOpen(second, b.id, "w2")
	require.NoError(t, err)
	require.NoError(t, b.WorkflowCheck(second, b.id))
	requireCode(t, failure.StaleWorkflow, b.TransitionRecord(first, next))
	require.NoError(t, b.TransitionRecord(second, next))
	all, err := b.Attended(b.ctx, "", time.Hour, 10)
	require.NoError(t, err)
	require.Equal(t, []backlog.Attended{{SessionID: b.id, Status: session.Error, WorkflowRun: "w2"}}, all)
}
