package worker

import (
	"context"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"
)

// Outages records the periods in which this worker could not reach Postgres or Temporal. An attempt
// that outlasts an outage leaves no other trace of it, but explanations must name it.
type Outages struct {
	// Store records outages once it can be reached. If nil, outages are not watched.
	Store OutageStore
	// Database and Temporal report whether they answer.
	Database, Temporal func(ctx context.Context) error
	// Every is the interval between checks. Default 2s.
	Every time.Duration
	// Timeout bounds one check. Default 5s.
	Timeout time.Duration
	// Shortest is the shortest outage that is recorded. Default 5s.
	Shortest time.Duration
}

// OutageStore stores outages.
type OutageStore interface {
	// OutageRecord records an outage of a part, with the time since it began and ended.
	OutageRecord(ctx context.Context, part string, began, ended time.Duration) error
}

// The parts whose outages are recorded.
const (
	partDatabase = "database"
	partTemporal = "temporal"
)

func (o Outages) run(ctx context.Context, logger *slog.Logger) error {
	if o.Store == nil {
		<-ctx.Done()
		return ctx.Err()
	}
	if o.Every == 0 {
		o.Every = 2 * time.Second
	}
	if o.Timeout == 0 {
		o.Timeout = 5 * time.Second
	}
	if o.Shortest == 0 {
		o.Shortest = 5 * time.Second
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return o.watch(ctx, logger, partDatabase, o.Database) })
	group.Go(func() error { return o.watch(ctx, logger, partTemporal, o.Temporal) })
	return group.Wait()
}

// suspended is how much later than planned a check may begin or end. Beyond that this process
// itself was suspended, and the state of the part is unknown.
const suspended = 10 * time.Second

// watch checks one part until ctx ends.
func (o Outages) watch(ctx context.Context, logger *slog.Logger, part string, look func(context.Context) error) error {
	ticker := time.NewTicker(o.Every)
	defer ticker.Stop()
	var since, until time.Time // of the outage that is not recorded; until is zero while it lasts
	for due := time.Now(); ; due = time.Now().Add(o.Every) {
		began := time.Now()
		limited, cancel := context.WithTimeout(ctx, o.Timeout)
		err := look(limited)
		cancel()
		now := time.Now()
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case began.Sub(due) > suspended || now.Sub(began) > o.Timeout+suspended:
			since, until = time.Time{}, time.Time{}
		case err != nil && since.IsZero():
			since = began
			logger.WarnContext(ctx, "a part of the installation does not answer", slog.String("part", part), slog.Any("error", err))
		case err != nil:
			until = time.Time{} // an outage that follows before this one is recorded extends it
		case !since.IsZero() && until.IsZero():
			until = now
		}
		if !until.IsZero() && o.record(ctx, logger, part, since, until) {
			since, until = time.Time{}, time.Time{}
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// record stores an outage that has ended, and reports whether no retry is needed.
func (o Outages) record(ctx context.Context, logger *slog.Logger, part string, since, until time.Time) bool {
	if until.Sub(since) < o.Shortest {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	if err := o.Store.OutageRecord(ctx, part, time.Since(since), time.Since(until)); err != nil {
		return false
	}
	logger.InfoContext(ctx, "recorded an outage", slog.String("part", part), slog.Duration("lasted", until.Sub(since)))
	return true
}
