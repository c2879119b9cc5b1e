package sessionclient

import (
	"context"
	"fmt"

	"go.temporal.io/api/common/v1"
	"go.temporal.io/api/workflowservice/v1"

	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// eraseRuns is the maximum number of runs of a workflow that one call deletes.
const eraseRuns = 1000

// Erase deletes every run of a session's workflow with its history and its entry in the visibility
// store, and terminates an open one. Temporal deletes in the background: Erase reports whether it
// found any run, and must be called until it finds none.
func (c *Client) Erase(ctx context.Context, sessionID string) (found bool, err error) {
	runs := map[string]bool{}
	current, err := c.newestRun(ctx, sessionID)
	if err != nil {
		return false, err
	}
	if current != "" {
		runs[current] = true
	}
	var page []byte
	for len(runs) < eraseRuns {
		list, err := c.listRuns(ctx, sessionID, page)
		if err != nil {
			return false, err
		}
		for _, e := range list.GetExecutions() {
			runs[e.GetExecution().GetRunId()] = true
		}
		if page = list.GetNextPageToken(); len(page) == 0 {
			break
		}
	}
	for run := range runs {
		if err := c.deleteRun(ctx, sessionID, run); err != nil {
			return true, err
		}
	}
	return len(runs) > 0, nil
}

// newestRun returns the id of the newest run of a session's workflow, open or not; empty if there
// is none.
func (c *Client) newestRun(ctx context.Context, sessionID string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	d, err := c.temporal.DescribeWorkflowExecution(ctx, sessionID, "")
	if err := interpret(err); err != nil {
		return "", ignoreClosed(err)
	}
	return d.GetWorkflowExecutionInfo().GetExecution().GetRunId(), nil
}

func (c *Client) listRuns(ctx context.Context, sessionID string, page []byte) (*workflowservice.ListWorkflowExecutionsResponse, error) {
	if !session.ValidID(session.SessionPrefix, sessionID) { // it becomes part of a query
		return nil, failure.Errorf(failure.Invalid, "%q is not the id of a session", sessionID)
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	list, err := c.temporal.ListWorkflow(ctx, &workflowservice.ListWorkflowExecutionsRequest{
		Namespace: c.namespace, PageSize: 100, NextPageToken: page, Query: fmt.Sprintf("WorkflowId = '%s'", sessionID),
	})
	return list, interpret(err)
}

func (c *Client) deleteRun(ctx context.Context, sessionID, runID string) error {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	_, err := c.temporal.WorkflowService().DeleteWorkflowExecution(ctx, &workflowservice.DeleteWorkflowExecutionRequest{
		Namespace: c.namespace, WorkflowExecution: &common.WorkflowExecution{WorkflowId: sessionID, RunId: runID},
	})
	return ignoreClosed(interpret(err))
}
