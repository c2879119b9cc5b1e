package activities

import (
	"context"
	"strings"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"

	"github.com/overwinter-dev/overwinter/internal/deadline"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/run"
	"github.com/overwinter-dev/overwinter/internal/session"
	"github.com/overwinter-dev/overwinter/internal/turn"
)

// recordStore stores a workflow's records of its session, runs and prompts.
type recordStore interface {
	// SessionOpen marks the session loaded and returns its state for the workflow, with a new
	// dispatch for an open run. workflowRunID is the workflow run that opens it.
	SessionOpen(ctx context.Context, sessionID, workflowRunID string) (session.Loaded, error)
	// SessionClose marks the session not loaded, because its workflow is about to complete.
	SessionClose(ctx context.Context, sessionID string) error
	// TransitionRecord stores a transition, projects it on the session (status,
	// reason, receipt, running time, sandbox) and appends the status event. A
	// transition with the same number and the same ends changes nothing.
	TransitionRecord(ctx context.Context, t session.Transition) error
	// CommandRequest is the id of the request that submitted a command; empty if it is not known.
	CommandRequest(ctx context.Context, commandID string) (string, error)
	// ProblemReport adds an error event to the session's log.
	ProblemReport(ctx context.Context, sessionID, code, message string) error
	// DeadlineAnnounce adds a deadline event to the session's log, if the deadline is near.
	DeadlineAnnounce(ctx context.Context, sessionID string, kind deadline.Kind) (deadline.Announced, error)
	// RunBegin claims a prompt for a run: queued to processing in one statement, with the events
	// turn_start, prompt and queue.
	RunBegin(ctx context.Context, sessionID, promptID, runID string, generation int64) (run.Verdict, error)
	// RunBeginAllotted is RunBegin for a run with the id that was allotted to the prompt, which the
	// verdict contains.
	RunBeginAllotted(ctx context.Context, sessionID, promptID, claimID string, generation int64) (run.Verdict, error)
	// RunReturn returns the prompt of a run that never reached the agent to its place in the queue;
	// with untouched, only if no attempt has ever attached. It reports whether the prompt is
	// queued.
	RunReturn(ctx context.Context, runID, reason string, untouched bool) (bool, error)
	// RunContinue gives a parked run to the session's sandbox of a generation, once none of its
	// questions is open.
	RunContinue(ctx context.Context, runID string, generation int64) (run.Continuation, error)
	// RunGet returns the current state of a run.
	RunGet(ctx context.Context, runID string) (run.Run, error)
	// RunOpen returns the id of the session's open run, or "".
	RunOpen(ctx context.Context, sessionID string) (string, error)
	// PromptRequeue returns a prompt whose outcome is unknown to the queue, as its policy requires.
	PromptRequeue(ctx context.Context, sessionID, promptID string) error
	// CommandSubmit stores a pending command, with its reason if no client sent it.
	CommandSubmit(ctx context.Context, c session.Command) (session.Commanded, error)
	// PromptsCancel ends every prompt that has not ended.
	PromptsCancel(ctx context.Context, sessionID, reason string) (int64, error)
}

// records are the activities that write rows of a session, its runs and its prompts.
type records struct {
	*Config
	store recordStore
	runs  *turn.Executor
}

// OpenSession marks the session loaded and returns its state for the workflow.
func (g *records) OpenSession(ctx context.Context, in SessionRef) (OpenedSession, error) {
	l, err := g.store.SessionOpen(ctx, in.SessionID, activity.GetInfo(ctx).WorkflowExecution.RunID)
	if err != nil {
		return OpenedSession{}, stored(err)
	}
	o := OpenedSession{
		Status: l.Status, StatusReason: l.StatusReason, ErrorCause: l.ErrorCause, Agent: l.Agent, Lazy: l.Lazy,
		IdleTimeout: l.IdleTimeout, LastActivity: l.LastActivity,
		Generation: l.Generation, TransitionNo: l.TransitionNo,
		Waiting: l.Waiting, Processing: l.Processing,
		SandboxID: l.SandboxID, SandboxSince: l.SandboxSince, Deadline: l.Deadline, Queue: g.Queue,
		Attend: g.Attend, Announce: true, ParkAfter: g.ParkAfter, Held: l.Queue.Hold.Held(),
		KeepsRoom: true, ClosesAsleep: g.Versioned,
	}
	if l.Workspace != nil {
		o.Workspace = keyword(l.Workspace.RepoURL)
	}
	o.Owner, o.Title = ownerOf(l.Metadata), l.GivenTitle
	if g.PublicURL != "" {
		o.URL = strings.TrimSuffix(g.PublicURL, "/") + "/api/sessions/" + in.SessionID
	}
	o.Commands = pendingCommands(l.Pending, l.Status)
	if l.Head != nil {
		o.BundleID = l.Head.ID
	}
	return o, nil
}

// CloseSession marks the session not loaded.
func (g *records) CloseSession(ctx context.Context, in SessionRef) error {
	return stored(g.store.SessionClose(ctx, in.SessionID))
}

// RecordTransition records a transition of a session.
func (g *records) RecordTransition(ctx context.Context, t session.Transition) error {
	if t.To == session.Restoring && g.Shutdown.isSet() {
		return errShutdown()
	}
	return stored(g.store.TransitionRecord(ctx, t))
}

// TellProblem reports a failed command to readers of the session's events.
func (g *records) TellProblem(ctx context.Context, in Problem) error {
	return stored(g.store.ProblemReport(ctx, in.SessionID, in.Code, in.Message))
}

// AnnounceDeadline reports the next deadline of the session to readers of its events.
func (g *records) AnnounceDeadline(ctx context.Context, in DeadlineRequest) (Announced, error) {
	a, err := g.store.DeadlineAnnounce(ctx, in.SessionID, in.Kind)
	return Announced(a), stored(err)
}

// BeginRun claims a prompt for a run.
func (g *records) BeginRun(ctx context.Context, in ClaimRequest) (run.Verdict, error) {
	if g.Shutdown.isSet() {
		if err := g.hibernateFirst(ctx, in.SessionID); err != nil {
			return run.Verdict{}, stored(err)
		}
	}
	begin := g.store.RunBegin
	if in.Allotted {
		begin = g.store.RunBeginAllotted
	}
	v, err := begin(ctx, in.SessionID, in.PromptID, in.RunID, in.Generation)
	return v, stored(err)
}

// ReturnRun returns the prompt of a run that never reached the agent to the queue.
func (g *records) ReturnRun(ctx context.Context, in SettleRequest) error {
	_, err := g.store.RunReturn(ctx, in.RunID, in.Reason, false)
	return stored(err)
}

// SettleRun ends a run that no worker can end, or returns its prompt to the queue. A run that has
// ended keeps its outcome.
func (g *records) SettleRun(ctx context.Context, in SettleRequest) (Settled, error) {
	if in.ReturnUntouched {
		returned, err := g.store.RunReturn(ctx, in.RunID, in.Reason, true)
		if err != nil || returned {
			return Settled{Returned: returned}, stored(err)
		}
	}
	ending := run.Ending{RunID: in.RunID, Outcome: in.Outcome, Reason: in.Reason, Requeue: in.Requeue}
	if err := g.runs.Settle(ctx, ending); err != nil {
		return Settled{}, err
	}
	run, err := g.store.RunGet(ctx, in.RunID)
	if err != nil || !in.Requeue {
		return Settled{Outcome: run.Outcome}, stored(err)
	}
	// The run has ended, so this changes nothing.
	queued, err := g.store.RunReturn(ctx, in.RunID, in.Reason, true)
	return Settled{Outcome: run.Outcome, Returned: queued}, stored(err)
}

// ContinueRun gives a parked run to a sandbox.
func (g *records) ContinueRun(ctx context.Context, in ContinueRequest) (Continuation, error) {
	c, err := g.store.RunContinue(ctx, in.RunID, in.Generation)
	return Continuation(c), stored(err)
}

// RequeuePrompt returns a prompt with an unknown outcome to the queue.
func (g *records) RequeuePrompt(ctx context.Context, in PromptRef) error {
	return stored(g.store.PromptRequeue(ctx, in.SessionID, in.PromptID))
}

// CancelPrompts ends every prompt of the session that has not ended, and closes the open blocks of
// the running one.
func (g *records) CancelPrompts(ctx context.Context, in PromptsRequest) error {
	runID, err := g.store.RunOpen(ctx, in.SessionID)
	if err != nil {
		return stored(err)
	}
	if runID != "" {
		ending := run.Ending{RunID: runID, Outcome: session.OutcomeCancelled, Reason: in.Reason}
		if err := g.runs.Settle(ctx, ending); err != nil {
			return err
		}
	}
	_, err = g.store.PromptsCancel(ctx, in.SessionID, in.Reason)
	return stored(err)
}

// stored classifies the errors of the store like turns do. A held queue is an error of prompts
// only.
func stored(err error) error {
	if failure.CodeOf(err) == failure.QueueHeld {
		return temporal.NewApplicationErrorWithCause(err.Error(), QueueHeld, err)
	}
	return converted(turn.Stored(err))
}
