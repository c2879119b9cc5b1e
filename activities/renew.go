package activities

import (
	"context"
	"time"
)

// repeatedly calls do after each pause until stop is called. Stop waits for a call in progress.
func repeatedly(ctx context.Context, pause time.Duration, do func(context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(pause)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			do(ctx)
		}
	}()
	return func() { cancel(); <-done }
}
