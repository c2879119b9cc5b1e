package worker

import (
	"context"
	"log/slog"
	"time"
)

// Statistics keeps the database's statistics up to date with the growth of its tables. Every worker does so; a
// table is analyzed by one at a time. Without tables it does nothing.
type Statistics struct {
	Tables StatisticsTables
	// Every is the time between two looks at the sizes of tables. Default 15s.
	Every time.Duration
}

// StatisticsTables analyzes tables that have grown since their last analysis, and returns their names.
type StatisticsTables interface {
	StatisticsRefresh(ctx context.Context) ([]string, error)
}

func (s Statistics) run(ctx context.Context, logger *slog.Logger) error {
	if s.Tables == nil {
		return nil
	}
	if s.Every == 0 {
		s.Every = 15 * time.Second
	}
	return repeat(ctx, s.Every, func() {
		analyzed, err := s.Tables.StatisticsRefresh(ctx)
		switch {
		case err != nil && ctx.Err() == nil:
			logger.WarnContext(ctx, "could not analyze tables that have grown; retrying", slog.Any("error", err))
		case len(analyzed) > 0:
			logger.DebugContext(ctx, "analyzed tables that have grown", slog.Any("tables", analyzed))
		}
	})
}
