package worker

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/sethvargo/go-retry"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"github.com/overwinter-dev/overwinter/internal/backoff"
	"github.com/overwinter-dev/overwinter/internal/contract"
	"github.com/overwinter-dev/overwinter/workflows"
)

// schedule creates or updates the reconciler's schedule with this worker's interval, and retries
// until Temporal accepts it.
func (w *Worker) schedule(ctx context.Context) error {
	return backoff.Retry(ctx, backoff.New(time.Second, 30*time.Second), func(ctx context.Context) error {
		err := w.ensureSchedule(ctx)
		if err != nil {
			w.config.Logger.WarnContext(ctx, "the reconciler's schedule could not be set; retrying", slog.Any("error", err))
		}
		return retry.RetryableError(err)
	})
}

func (w *Worker) ensureSchedule(ctx context.Context) error {
	spec := client.ScheduleSpec{Intervals: []client.ScheduleIntervalSpec{{Every: w.config.ReconcileEvery}}}
	_, err := w.config.Temporal.ScheduleClient().Create(ctx, client.ScheduleOptions{
		ID:   contract.ScheduleOf(w.config.Installation),
		Spec: spec,
		Action: &client.ScheduleWorkflowAction{
			ID:                       contract.ScheduleOf(w.config.Installation),
			Workflow:                 workflows.ReconcileName,
			TaskQueue:                w.queues.Control,
			WorkflowExecutionTimeout: 10 * time.Minute,
		},
		Overlap: enums.SCHEDULE_OVERLAP_POLICY_SKIP,
		// A missed reconciliation is covered by the next one.
		CatchupWindow: w.config.ReconcileEvery,
	})
	if err == nil || !errors.Is(err, temporal.ErrScheduleAlreadyRunning) {
		return err
	}
	handle := w.config.Temporal.ScheduleClient().GetHandle(ctx, contract.ScheduleOf(w.config.Installation))
	return handle.Update(ctx, client.ScheduleUpdateOptions{
		DoUpdate: func(in client.ScheduleUpdateInput) (*client.ScheduleUpdate, error) {
			s := in.Description.Schedule
			s.Spec = &spec
			return &client.ScheduleUpdate{Schedule: &s}, nil
		},
	})
}

// deleteSchedule deletes a schedule, if it exists.
func (w *Worker) deleteSchedule(ctx context.Context, id string) error {
	err := w.config.Temporal.ScheduleClient().GetHandle(ctx, id).Delete(ctx)
	if _, ok := errors.AsType[*serviceerror.NotFound](err); ok {
		return nil
	}
	return err
}
