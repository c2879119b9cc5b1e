package worker

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/worker"

	"github.com/overwinter-dev/overwinter/internal/backoff"
	"github.com/overwinter-dev/overwinter/internal/contract"
)

// Legacy reports whether an installation was upgraded from a release whose installations shared the
// names of queues and schedule. Nil means that it was not.
type Legacy interface {
	// LegacyQueues reports whether workflows may be open on the old queues.
	LegacyQueues(ctx context.Context) (bool, error)
	// LegacyQueuesDrained records that no workflow is open on the old queues.
	LegacyQueuesDrained(ctx context.Context) error
}

// drainLegacy polls the queues of earlier releases until no workflow is open on them: sessions
// leave them when their workflow continues as new, or is completed and started again. Without a
// poller they would not progress. drainLegacy returns at once in an installation that never had
// these queues.
func (w *Worker) drainLegacy(ctx context.Context) error {
	if w.config.Legacy == nil {
		return nil
	}
	var stop func()
	defer func() {
		if stop != nil {
			stop()
		}
	}()
	pauses := backoff.New(time.Second, w.config.LegacyEvery)
	for {
		legacy, err := w.config.Legacy.LegacyQueues(ctx)
		if err == nil && !legacy {
			return nil
		}
		if err == nil && stop == nil {
			// These pollers have no build: other installations poll the queues too, and the
			// workflows leave them for a queue whose pollers have a build.
			stop, err = start(w.newPollers(contract.QueuesOf(""), worker.DeploymentOptions{}))
		}
		wait := w.config.LegacyEvery
		if err == nil {
			err = w.retireLegacy(ctx)
		}
		if err != nil {
			wait, _ = pauses.Next()
		}
		if err != nil && ctx.Err() == nil {
			w.config.Logger.WarnContext(ctx, "could not serve the task queues of an earlier release; retrying", slog.Any("error", err))
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		}
	}
}

// retireLegacy deletes the old schedule, which this installation has replaced, and records when the
// old queues are drained. The next check then ends the polling.
func (w *Worker) retireLegacy(ctx context.Context) error {
	if err := w.deleteSchedule(ctx, contract.ScheduleOf("")); err != nil {
		return err
	}
	open, err := w.config.Temporal.CountWorkflow(ctx, &workflowservice.CountWorkflowExecutionsRequest{
		Query: fmt.Sprintf("TaskQueue = '%s' AND ExecutionStatus = 'Running'", contract.QueuesOf("").Control),
	})
	if err != nil {
		return fmt.Errorf("count the workflows on the old queue: %w", err)
	}
	if open.GetCount() > 0 {
		return nil
	}
	return w.config.Legacy.LegacyQueuesDrained(ctx)
}
