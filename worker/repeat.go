package worker

import (
	"context"
	"time"
)

// repeat calls pass at once and then at each tick, until ctx ends.
func repeat(ctx context.Context, every time.Duration, pass func()) error {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		pass()
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
