package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/taskqueue/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"

	"github.com/overwinter-dev/overwinter/internal/contract"
)

// moveStranded looks for workflows that are pinned to a build without workers, for example after a
// rollout that did not wait for its sessions. It restarts each on the current build, or on workers
// without builds if there is no current one. The session's state is in Postgres.
func (w *Worker) moveStranded(ctx context.Context) error {
	ticker := time.NewTicker(w.config.Deployment.StrandedEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		moved, err := w.moveOnce(ctx)
		if moved > 0 {
			w.config.Logger.WarnContext(ctx, "restarted workflows on the current build; their build has no workers", slog.Int("workflows", moved))
		}
		if err != nil && ctx.Err() == nil {
			w.config.Logger.WarnContext(ctx, "could not look for workflows whose build has no workers; retrying", slog.Any("error", err))
		}
	}
}

func (w *Worker) moveOnce(ctx context.Context) (moved int, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	name := w.config.Deployment.Name
	d, err := w.config.Temporal.WorkerDeploymentClient().GetHandle(name).Describe(ctx, client.WorkerDeploymentDescribeOptions{})
	if w.config.Deployment.Build == "" && unknownDeployment(err) {
		return 0, nil // no worker of the installation has ever had a build
	}
	if err != nil {
		return 0, fmt.Errorf("describe the deployment: %w", err)
	}
	current, ramping := "", "" // workers without builds
	if v := d.Info.RoutingConfig.CurrentVersion; v != nil {
		current = v.BuildID
	}
	if v := d.Info.RoutingConfig.RampingVersion; v != nil {
		ramping = v.BuildID
	}
	polled, err := w.polledBuilds(ctx)
	if err != nil {
		return 0, err
	}
	if !polled[current] { // the current build has no workers either, so the workflows cannot be moved
		w.config.Logger.WarnContext(ctx, "no worker has the current build of the deployment; sessions that wake wait for one, or for another build to become current",
			slog.String("deployment", name), slog.String("current_build", current))
		return 0, nil
	}
	for _, v := range d.Info.VersionSummaries {
		build := v.Version.BuildID
		if polled[build] || v.DrainageStatus == client.WorkerDeploymentVersionDrainageStatusDrained {
			continue
		}
		if build == current || build == ramping {
			continue // the workflows would start on this build again
		}
		n, err := w.moveFrom(ctx, name+":"+build)
		moved += n
		if err != nil {
			return moved, err
		}
	}
	return moved, nil
}

// unknownDeployment reports whether Temporal has no such deployment, has no deployments at all, or does not show them to this worker.
func unknownDeployment(err error) bool {
	if _, ok := errors.AsType[*serviceerror.NotFound](err); ok {
		return true
	}
	if _, ok := errors.AsType[*serviceerror.Unimplemented](err); ok {
		return true
	}
	_, ok := errors.AsType[*serviceerror.PermissionDenied](err)
	return ok
}

// polledBuilds returns the builds whose workers have polled the control queue recently; "" means
// workers without builds.
func (w *Worker) polledBuilds(ctx context.Context) (map[string]bool, error) {
	builds := map[string]bool{w.config.Deployment.Build: true}
	queue, err := w.config.Temporal.WorkflowService().DescribeTaskQueue(ctx, &workflowservice.DescribeTaskQueueRequest{
		Namespace: w.config.Namespace, TaskQueue: &taskqueue.TaskQueue{Name: w.queues.Control}, TaskQueueType: enums.TASK_QUEUE_TYPE_WORKFLOW,
	})
	if err != nil {
		return nil, fmt.Errorf("describe the queue: %w", err)
	}
	for _, p := range queue.GetPollers() {
		if time.Since(p.GetLastAccessTime().AsTime()) >= w.config.Deployment.StrandedAfter {
			continue
		}
		if o := p.GetDeploymentOptions(); o.GetWorkerVersioningMode() == enums.WORKER_VERSIONING_MODE_VERSIONED {
			builds[o.GetBuildId()] = true
		} else {
			builds[""] = true
		}
	}
	return builds, nil
}

// moveFrom terminates the open workflows of sessions that are pinned to a version, and starts each again.
func (w *Worker) moveFrom(ctx context.Context, version string) (moved int, err error) {
	query := fmt.Sprintf("TemporalWorkerDeploymentVersion = %q AND ExecutionStatus = 'Running' AND WorkflowType = %q", version, contract.WorkflowName)
	for token := []byte(nil); ; {
		page, err := w.config.Temporal.ListWorkflow(ctx, &workflowservice.ListWorkflowExecutionsRequest{
			Namespace: w.config.Namespace, Query: query, NextPageToken: token,
		})
		if err != nil {
			return moved, fmt.Errorf("list the workflows of %s: %w", version, err)
		}
		for _, found := range page.GetExecutions() {
			e := found.GetExecution()
			err := w.config.Temporal.TerminateWorkflow(ctx, e.GetWorkflowId(), e.GetRunId(), "no worker is left of the build that it is pinned to; it starts again on the current one")
			if _, ok := errors.AsType[*serviceerror.NotFound](err); ok {
				continue // the workflow has ended in the meantime
			}
			if err == nil {
				err = w.config.Relay.Signaler.SignalPrompt(ctx, e.GetWorkflowId(), "", 0)
			}
			if err != nil { // the reconciler starts a terminated workflow again
				return moved, fmt.Errorf("move session %s: %w", e.GetWorkflowId(), err)
			}
			moved++
		}
		if token = page.GetNextPageToken(); len(token) == 0 {
			return moved, nil
		}
	}
}
