package worker

import (
	"context"
	"log/slog"
)

// RunDrain runs a drain without a worker.
func RunDrain(ctx context.Context, d Drain) { d.run(ctx, slog.New(slog.DiscardHandler)) }

// RunLifecycle orders lifecycle events without a worker.
func RunLifecycle(ctx context.Context, l Lifecycle) {
	l.run(ctx, slog.New(slog.DiscardHandler)) //nolint:errcheck // it ends with ctx
}
