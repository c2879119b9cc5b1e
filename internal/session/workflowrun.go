package session

import "context"

type workflowRunKey struct{}

// WithWorkflowRun returns a context for calls on behalf of a run of a session's workflow. The store refuses its writes
// to the session with failure.StaleWorkflow if another run of the workflow has opened the session since.
func WithWorkflowRun(ctx context.Context, runID string) context.Context {
	return context.WithValue(ctx, workflowRunKey{}, runID)
}

// WorkflowRunOf returns the workflow run of a context; empty if it has none.
func WorkflowRunOf(ctx context.Context) string {
	runID, _ := ctx.Value(workflowRunKey{}).(string)
	return runID
}
