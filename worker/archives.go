package worker

import (
	"context"
	"log/slog"
	"time"
)

// Archives makes the requested archives of bundles. Every worker does so; Postgres leases each
// archive to one worker at a time. Without an Archiver it does nothing.
type Archives struct {
	Archiver Archiver
	// Every is the time between two passes. Default 2s.
	Every time.Duration
}

// Archiver makes the archives that are due.
type Archiver interface {
	Pass(ctx context.Context) error
}

func (a Archives) run(ctx context.Context, logger *slog.Logger) error {
	if a.Archiver == nil {
		return nil
	}
	if a.Every == 0 {
		a.Every = 2 * time.Second
	}
	return repeat(ctx, a.Every, func() {
		if err := a.Archiver.Pass(ctx); err != nil && ctx.Err() == nil {
			logger.WarnContext(ctx, "could not make every archive; retrying", slog.Any("error", err))
		}
	})
}
