package activities

import (
	"context"

	"go.temporal.io/sdk/activity"

	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// OpenSession marks the session loaded and returns what its workflow must know.
func (c *Control) OpenSession(ctx context.Context, in SessionRef) (OpenedSession, error) {
	l, err := c.Store.SessionOpen(ctx, in.SessionID, activity.GetInfo(ctx).WorkflowExecution.RunID)
	if err != nil {
		return OpenedSession{}, stored(err)
	}
	o := OpenedSession{
		Status: l.Status, StatusReason: l.StatusReason, ErrorCause: l.ErrorCause, Agent: l.Agent, Lazy: l.Lazy,
		IdleTimeout: l.IdleTimeout, LastActivity: l.LastActivity,
		Generation: l.Generation, TransitionNo: l.TransitionNo,
		Waiting: l.Waiting, Processing: l.Processing,
		SandboxID: l.SandboxID, SandboxSince: l.SandboxSince, Deadline: l.Deadline, Queue: c.Queue,
		Attend: c.Attend,
	}
	if l.Workspace != nil {
		o.Workspace = keyword(l.Workspace.RepoURL)
	}
	o.Commands = pendingCommands(l.Pending)
	if l.Head != nil {
		o.BundleID = l.Head.ID
	}
	return o, nil
}

// CloseSession marks the session not loaded.
func (c *Control) CloseSession(ctx context.Context, in SessionRef) error {
	return stored(c.Store.SessionClose(ctx, in.SessionID))
}

// RecordTransition records one step of a session's life.
func (c *Control) RecordTransition(ctx context.Context, t session.Transition) error {
	return stored(c.Store.TransitionRecord(ctx, t))
}

// TellProblem reports to readers of the session's events what could not be done.
func (c *Control) TellProblem(ctx context.Context, in Problem) error {
	return stored(c.Store.ProblemTell(ctx, in.SessionID, in.Code, in.Message))
}

// BeginRun claims a prompt for a run.
func (c *Control) BeginRun(ctx context.Context, in ClaimRequest) (session.RunVerdict, error) {
	v, err := c.Store.RunBegin(ctx, in.SessionID, in.PromptID, in.RunID, in.Generation)
	return v, stored(err)
}

// ReturnRun puts the prompt of a run that never reached the agent back.
func (c *Control) ReturnRun(ctx context.Context, in SettleRequest) error {
	_, err := c.Store.RunReturn(ctx, in.RunID, in.Reason, false)
	return stored(err)
}

// SettleRun ends a run that no worker can end any more, or returns its prompt to the queue. A run
// that is over keeps its outcome.
func (c *Control) SettleRun(ctx context.Context, in SettleRequest) (Settled, error) {
	if in.ReturnUntouched {
		returned, err := c.Store.RunReturn(ctx, in.RunID, in.Reason, true)
		if err != nil || returned {
			return Settled{Returned: returned}, stored(err)
		}
	}
	ending := session.RunEnding{RunID: in.RunID, Outcome: in.Outcome, Reason: in.Reason, Requeue: in.Requeue}
	if err := c.settle(ctx, ending); err != nil {
		return Settled{}, err
	}
	run, err := c.Store.RunGet(ctx, in.RunID)
	if err != nil || !in.Requeue {
		return Settled{Outcome: run.Outcome}, stored(err)
	}
	// The run is over, so that this changes nothing.
	queued, err := c.Store.RunReturn(ctx, in.RunID, in.Reason, true)
	return Settled{Outcome: run.Outcome, Returned: queued}, stored(err)
}

// RequeuePrompt puts a prompt with a lost outcome back in the queue.
func (c *Control) RequeuePrompt(ctx context.Context, in PromptRef) error {
	return stored(c.Store.PromptRequeue(ctx, in.SessionID, in.PromptID))
}

// CancelPrompts ends every prompt of the session that is not over, and closes
// what the running one left open.
func (c *Control) CancelPrompts(ctx context.Context, in PromptsRequest) error {
	runID, err := c.Store.RunOpen(ctx, in.SessionID)
	if err != nil {
		return stored(err)
	}
	if runID != "" {
		ending := session.RunEnding{RunID: runID, Outcome: session.OutcomeCancelled, Reason: in.Reason}
		if err := c.settle(ctx, ending); err != nil {
			return err
		}
	}
	_, err = c.Store.PromptsCancel(ctx, in.SessionID, in.Reason)
	return stored(err)
}

// stored sorts the errors of Postgres: what it refuses it will refuse again.
func stored(err error) error {
	switch failure.CodeOf(err) {
	case "":
		return nil
	case failure.IllegalState:
		return final(Fenced, err)
	case failure.Internal, failure.Unavailable:
		return err
	case failure.NoSession:
		return final(SessionMissing, err)
	case failure.StaleWorkflow:
		return final(StaleWorkflow, err)
	}
	return final(Refused, err)
}

// kept sorts the errors of storing changes of the workspace. Illegal state is no sign of a newer attempt, which
// eventlog.ErrFenced reports.
func kept(err error) error {
	if failure.CodeOf(err) == failure.IllegalState {
		return err
	}
	return stored(err)
}
