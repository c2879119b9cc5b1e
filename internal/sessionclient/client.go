package sessionclient

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"

	"github.com/overwinter-dev/overwinter/internal/backlog"
	"github.com/overwinter-dev/overwinter/internal/contract"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// timeout bounds every call, so that a hanging Temporal is detected.
const timeout = 2 * time.Second

// Client talks to the workflows of sessions. It is safe for concurrent use.
type Client struct {
	temporal  client.Client
	namespace string
	queue     Queue
	timeout   time.Duration
}

// Queue returns the task queue of the installation's workflows. A client may have to read the
// installation from Postgres first.
type Queue func(context.Context) (string, error)

// At returns a Queue for a fixed name.
func At(name string) Queue { return func(context.Context) (string, error) { return name, nil } }

// New returns a client that uses a Temporal client for the namespace, which the caller still owns.
// It starts workflows on the queue.
func New(temporal client.Client, namespace string, queue Queue) *Client {
	return &Client{temporal: temporal, namespace: namespace, queue: queue, timeout: timeout}
}

// SignalPrompt notifies the session's workflow of a prompt and starts the workflow if it is not open. With
// an empty prompt id it only makes sure that the workflow is open.
func (c *Client) SignalPrompt(ctx context.Context, sessionID, promptID string, ordinal int64) error {
	return c.signalWithStart(ctx, sessionID, contract.SignalPrompt, contract.PromptSignal{
		PromptID: promptID, Ordinal: ordinal, At: time.Now().UTC(),
	})
}

// SignalAttended records prompts that were submitted while the session had an attendant in the
// history of an open workflow. It is not an error if no workflow is open.
func (c *Client) SignalAttended(ctx context.Context, sessionID string, prompts []session.QueuedPrompt) error {
	return ignoreClosed(c.signal(ctx, sessionID, contract.SignalAttended, contract.AttendedSignal{Prompts: prompts}))
}

// SignalCommands notifies the session's workflow that commands are pending and starts the workflow if it is
// not open.
func (c *Client) SignalCommands(ctx context.Context, sessionID string) error {
	return c.signalWithStart(ctx, sessionID, contract.SignalCommands, nil)
}

// SignalStop notifies the session's workflow of a stop and starts the workflow if it is not open.
func (c *Client) SignalStop(ctx context.Context, sessionID string) error {
	return c.signalWithStart(ctx, sessionID, contract.SignalStop, nil)
}

// SignalSettings notifies an open workflow of a changed idle timeout. It is not an error if no
// workflow is open, because a workflow reads its settings when it starts.
func (c *Client) SignalSettings(ctx context.Context, sessionID string, idleTimeout time.Duration) error {
	return ignoreClosed(c.signal(ctx, sessionID, contract.SignalSettings, contract.SettingsSignal{IdleTimeout: idleTimeout}))
}

// SignalSandbox reports that, according to the provider, the sandbox of a generation is dead. It is
// not an error if no workflow is open.
func (c *Client) SignalSandbox(ctx context.Context, sessionID string, s contract.SandboxSignal) error {
	return ignoreClosed(c.signal(ctx, sessionID, contract.SignalSandbox, s))
}

// Revive restarts the workflow of a session if it is not open, and reports whether it did. If an
// open workflow does not execute the session's run, or if another run of the workflow has opened
// the session because this one was reset, Revive signals it to read the session again, and reports
// true as well. It replaces a workflow of an earlier version whose session is in error, because
// that version waits for a person after every error.
func (c *Client) Revive(ctx context.Context, s backlog.Attended) (bool, error) {
	current, err := c.CurrentRun(ctx, s.SessionID)
	switch {
	case err != nil:
		return false, err
	case current == "":
	case s.WorkflowRun == "" && s.Status == session.Error:
		if err := c.terminate(ctx, s.SessionID, current); err != nil {
			return false, err
		}
	case s.WorkflowRun != "" && s.WorkflowRun != current:
	default:
		known, err := c.knows(ctx, s)
		if err != nil || known {
			return false, err
		}
	}
	return true, c.SignalPrompt(ctx, s.SessionID, "", 0)
}

// knows reports whether the open workflow of a session executes its run.
func (c *Client) knows(ctx context.Context, s backlog.Attended) (bool, error) {
	if s.RunID == "" {
		return true, nil
	}
	encoded, err := c.State(ctx, s.SessionID)
	if err != nil {
		return false, err
	}
	var view contract.StateView
	if err := json.Unmarshal(encoded, &view); err != nil {
		return false, fmt.Errorf("read the state of session %s: %w", s.SessionID, err)
	}
	return view.RunID == s.RunID, nil
}

// terminate ends a run of a session's workflow. The next one continues from what Postgres has.
func (c *Client) terminate(ctx context.Context, sessionID, runID string) error {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	return ignoreClosed(interpret(c.temporal.TerminateWorkflow(ctx, sessionID, runID, "replaced by a workflow of this version")))
}

// CurrentRun returns the id of the session's open workflow run; empty if none is open.
func (c *Client) CurrentRun(ctx context.Context, sessionID string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	d, err := c.temporal.DescribeWorkflowExecution(ctx, sessionID, "")
	err = interpret(err)
	info := d.GetWorkflowExecutionInfo()
	switch {
	case failure.CodeOf(err) == failure.NoSession:
		return "", nil
	case err != nil || info.GetStatus() != enums.WORKFLOW_EXECUTION_STATUS_RUNNING:
		return "", err
	}
	return info.GetExecution().GetRunId(), nil
}

// State returns the workflow's own view of the session, a contract.StateView as JSON.
func (c *Client) State(ctx context.Context, sessionID string) (json.RawMessage, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	answer, err := c.temporal.QueryWorkflowWithOptions(ctx, &client.QueryWorkflowWithOptionsRequest{
		WorkflowID: sessionID, QueryType: contract.QueryState,
		QueryRejectCondition: enums.QUERY_REJECT_CONDITION_NOT_OPEN,
	})
	if err != nil {
		return nil, interpret(err)
	}
	if answer.QueryRejected != nil {
		return nil, notOpen(sessionID)
	}
	var view contract.StateView
	if err := answer.QueryResult.Get(&view); err != nil {
		return nil, &failure.Error{Code: failure.Internal, Message: "the workflow's answer cannot be read", Err: err}
	}
	return json.Marshal(view)
}

// Ping reports whether Temporal responds for the namespace.
func (c *Client) Ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	_, err := c.temporal.WorkflowService().DescribeNamespace(ctx, &workflowservice.DescribeNamespaceRequest{Namespace: c.namespace})
	return interpret(err)
}

func (c *Client) signal(ctx context.Context, sessionID, name string, arg any) error {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	err := interpret(c.temporal.SignalWorkflow(ctx, sessionID, "", name, arg))
	if failure.CodeOf(err) == failure.NoSession {
		return notOpen(sessionID)
	}
	return err
}

func (c *Client) signalWithStart(ctx context.Context, sessionID, name string, arg any) error {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	queue, err := c.queue(ctx)
	if err != nil {
		return err
	}
	_, err = c.temporal.SignalWithStartWorkflow(ctx, sessionID, name, arg, client.StartWorkflowOptions{
		ID:        sessionID,
		TaskQueue: queue,
		// A session may be unloaded and started again, and must resume after its workflow was
		// terminated by hand, because Postgres has its state.
		WorkflowIDReusePolicy: enums.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE,
		StaticSummary:         "session " + sessionID,
		StaticDetails: "A session of a coding agent. The current details show its status and the available actions. " +
			"Canceling this workflow stops the session. Terminating or resetting it is harmless: the session's state is in Postgres, and " +
			"a new workflow continues from there.",
	}, contract.WorkflowName, contract.WorkflowInput{SessionID: sessionID})
	return interpret(err)
}

// interpret converts Temporal's errors to failure.Error.
func interpret(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*serviceerror.NotFound](err); ok {
		return &failure.Error{Code: failure.NoSession, Message: "no workflow is open for the session", Err: err}
	}
	return &failure.Error{Code: failure.Unavailable, Message: "temporal does not answer", Err: err}
}

func notOpen(sessionID string) error {
	return failure.Errorf(failure.NoSession, "no workflow is open for session %s", sessionID)
}

func ignoreClosed(err error) error {
	if failure.CodeOf(err) == failure.NoSession {
		return nil
	}
	return err
}
