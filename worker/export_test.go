package worker

import (
	"context"
	"log/slog"

	"go.temporal.io/sdk/worker"
)

// RunDrain runs a drain without a worker.
func RunDrain(ctx context.Context, d Drain) { d.run(ctx, slog.New(slog.DiscardHandler)) }

// RunLifecycle orders lifecycle events without a worker.
func RunLifecycle(ctx context.Context, l Lifecycle) {
	l.run(ctx, slog.New(slog.DiscardHandler)) //nolint:errcheck // it ends with ctx
}

// MoveStranded looks once for workflows whose build has no workers.
func MoveStranded(ctx context.Context, w *Worker) (int, error) { return w.moveOnce(ctx) }

// DeploymentOptionsOf returns the deployment options of an installation's pollers.
func DeploymentOptionsOf(d Deployment, installation string) worker.DeploymentOptions {
	return d.withDefaults(installation).options()
}
