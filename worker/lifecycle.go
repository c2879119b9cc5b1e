package worker

import (
	"context"
	"log/slog"
	"time"

	"github.com/overwinter-dev/overwinter/internal/lifecycle"
)

// Lifecycle gives lifecycle events their positions, and deletes old ones. Every worker does; Postgres lets one at a time. Without a
// store it does nothing.
type Lifecycle struct {
	Store LifecycleStore
	// Every is the time between two passes: how long an event may wait for its position. Default 500ms.
	Every time.Duration
}

// LifecycleStore has the lifecycle events.
type LifecycleStore interface {
	// LifecycleNumber gives the events that have no position theirs, some at a time, and reports whether there were any.
	LifecycleNumber(ctx context.Context) (bool, error)
	// LifecycleDelete deletes events from before a time, some at a time, and reports whether others are left.
	LifecycleDelete(ctx context.Context, before time.Time) (bool, error)
}

// deleteLifecycleEvery is the time between two deletions of old events.
const deleteLifecycleEvery = 10 * time.Minute

func (l Lifecycle) run(ctx context.Context, logger *slog.Logger) error {
	if l.Store == nil {
		return nil
	}
	if l.Every == 0 {
		l.Every = 500 * time.Millisecond
	}
	var deleted time.Time
	failing := false
	return repeat(ctx, l.Every, func() {
		err := l.number(ctx)
		if err == nil && time.Since(deleted) > deleteLifecycleEvery {
			if err = l.delete(ctx); err == nil {
				deleted = time.Now()
			}
		}
		if err != nil && ctx.Err() == nil && !failing {
			logger.WarnContext(ctx, "could not order lifecycle events; retrying", slog.Any("error", err))
		}
		failing = err != nil
	})
}

func (l Lifecycle) number(ctx context.Context) error {
	for {
		numbered, err := l.Store.LifecycleNumber(ctx)
		if err != nil || !numbered {
			return err
		}
	}
}

func (l Lifecycle) delete(ctx context.Context) error {
	before := time.Now().Add(-lifecycle.Retention)
	for {
		more, err := l.Store.LifecycleDelete(ctx, before)
		if err != nil || !more {
			return err
		}
	}
}
