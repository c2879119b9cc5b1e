package devstack

import (
	"context"
	"log/slog"
	"time"
)

const (
	watchEvery    = 5 * time.Second // interval and timeout of probes
	watchFailures = 3               // consecutive failed probes before it is logged
)

// watched is a running part with its probe.
type watched struct {
	name  string
	probe func(context.Context) error
}

// watch logs when a part does not respond or reports a failure, until ctx ends. A frozen process
// logs nothing itself, so nothing else would explain why prompts wait.
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
