package worker

import (
	"context"
	"log/slog"
	"time"
)

// Purges erases sessions whose purge was requested. Every worker does so; Postgres leases each
// purge to one worker at a time. Without a Purger it does nothing.
type Purges struct {
	Purger Purger
	// Every is the time between two passes. Default 2s.
	Every time.Duration
}

// Purger advances due purges by a step.
type Purger interface {
	Pass(ctx context.Context) error
}

func (p Purges) run(ctx context.Context, logger *slog.Logger) error {
	if p.Purger == nil {
		return nil
	}
	if p.Every == 0 {
		p.Every = 2 * time.Second
	}
	return repeat(ctx, p.Every, func() {
		if err := p.Purger.Pass(ctx); err != nil && ctx.Err() == nil {
			logger.WarnContext(ctx, "could not complete every purge; retrying", slog.Any("error", err))
		}
	})
}
