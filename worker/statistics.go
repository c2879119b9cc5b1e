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
	// Every is the time between two looks at the sizes of tables. After an error it doubles each time, up to 40 times
	// as long: the analysis of a table may fail for a long time, after much work. Default 15s.
	Every time.Duration
}

// StatisticsTables analyzes the tables of at least few rows that have grown since their last analysis, and returns the names of
// those that were due.
type StatisticsTables interface {
	StatisticsRefresh(ctx context.Context, few int) (due []string, err error)
}

// fewRows is the number of rows that a statement may read in vain: that takes a tenth of a millisecond. After an analysis, each connection
// plans its statements again, which takes up to a few milliseconds each.
const fewRows = 500

func (s Statistics) run(ctx context.Context, logger *slog.Logger) error {
	if s.Tables == nil {
		return nil
	}
	if s.Every == 0 {
		s.Every = 15 * time.Second
	}
	pause := s.Every
	for {
		due, err := s.Tables.StatisticsRefresh(ctx, fewRows)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			pause = min(2*pause, 40*s.Every)
			logger.WarnContext(ctx, "could not analyze every table that has grown; retrying", slog.Any("error", err), slog.Duration("after", pause))
		default:
			pause = s.Every
		}
		if len(due) > 0 {
			logger.DebugContext(ctx, "tables that have grown were due for an analysis", slog.Any("tables", due))
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		}
	}
}
