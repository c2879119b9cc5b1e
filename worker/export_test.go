package worker

import (
	"context"
	"log/slog"
)

// RunDrain runs a drain without a worker.
func RunDrain(ctx context.Context, d Drain) { d.run(ctx, slog.New(slog.DiscardHandler)) }
