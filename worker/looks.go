package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"go.temporal.io/api/common/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"

	"github.com/overwinter-dev/overwinter/internal/contract"
	"github.com/overwinter-dev/overwinter/workflows"
)

const (
	// looksKept is how long the workflow of a completed reconciliation is kept.
	looksKept = time.Minute
	// looksAtOnce bounds how many are deleted at a time.
	looksAtOnce = 200
)

// forgetLooks deletes the workflows of completed reconciliations and deliveries, because there is
// one for every interval of the schedule and for every event of a webhook, and lists of workflows
// should show sessions. Failed ones are kept for the retention period of the namespace.
func (w *Worker) forgetLooks(ctx context.Context) error {
	every := w.config.ForgetEvery
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		err := w.forgetCompleted(ctx, time.Now().Add(-min(looksKept, every)))
		if _, denied := errors.AsType[*serviceerror.PermissionDenied](err); denied {
			w.config.Logger.InfoContext(ctx, "completed reconciliations stay in Temporal's list: workflows must not be deleted there", slog.Any("error", err))
			return nil
		}
		if err != nil && ctx.Err() == nil {
			w.config.Logger.DebugContext(ctx, "completed reconciliations could not be deleted; retrying", slog.Any("error", err))
		}
	}
}

func (w *Worker) forgetCompleted(ctx context.Context, before time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	service := w.config.Temporal.WorkflowService()
	found, err := w.config.Temporal.ListWorkflow(ctx, &workflowservice.ListWorkflowExecutionsRequest{
		PageSize: looksAtOnce,
		Query: fmt.Sprintf("(WorkflowType = '%s' AND TemporalScheduledById = '%s' OR WorkflowType = '%s' AND TaskQueue = '%s') AND ExecutionStatus = 'Completed' AND CloseTime < '%s'",
			workflows.ReconcileName, contract.ScheduleOf(w.config.Installation), workflows.DeliverWebhookName, w.queues.Control, before.UTC().Format(time.RFC3339)),
	})
	if err != nil {
		return err
	}
	for _, e := range found.GetExecutions() {
		_, err := service.DeleteWorkflowExecution(ctx, &workflowservice.DeleteWorkflowExecutionRequest{
			Namespace: w.config.Namespace,
			WorkflowExecution: &common.WorkflowExecution{
				WorkflowId: e.GetExecution().GetWorkflowId(), RunId: e.GetExecution().GetRunId(),
			},
		})
		if _, gone := errors.AsType[*serviceerror.NotFound](err); err != nil && !gone { // another worker deletes too
			return err
		}
	}
	return nil
}
