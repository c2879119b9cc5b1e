package devstack

import (
	"context"
	"log/slog"
	"time"
)

const (
	watchEvery    = 5 * time.Second // between two probes, and the longest that one takes
	watchFailures = 3               // probes in a row that fail before it is logged
)

// watched is a part that runs, and the probe that says whether it works.
type watched struct {
	name  string
	probe func(context.Context) error
}

// watch logs that a part does not answer, or says that it does not work, until ctx ends. A process that is frozen logs nothing
// itself, and nothing would say why prompts wait.
func (w watched) watch(ctx context.Context, logger *slog.Logger) {
	ticker := time.NewTicker(watchEvery)
	defer ticker.Stop()
	var since time.Time
	for failures := 0; ; {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		err := w.ask(ctx)
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			if failures >= watchFailures {
				logger.InfoContext(ctx, "a part of the system works again", slog.String("part", w.name), slog.Duration("after", time.Since(since)))
			}
			failures = 0
			continue
		}
		if failures == 0 {
			since = time.Now()
		}
		if failures++; failures == watchFailures {
			logger.WarnContext(ctx, "a part of the system does not work", slog.String("part", w.name), slog.Any("error", err))
		}
	}
}

func (w watched) ask(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, watchEvery)
	defer cancel()
	return w.probe(ctx)
}
