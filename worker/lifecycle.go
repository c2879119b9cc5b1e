package worker

import (
	"context"
	"log/slog"
	"time"

	"github.com/overwinter-dev/overwinter/internal/lifecycle"
)

// Lifecycle assigns positions to lifecycle events, and deletes old events. Every worker does so;
// Postgres admits one at a time. Without a store it does nothing.
type Lifecycle struct {
	Store LifecycleStore
	// Every is the interval between passes, which bounds how long an event waits for its position.
	// Default 500ms.
	Every time.Duration
}

// LifecycleStore stores the lifecycle events.
type LifecycleStore interface {
	// LifecycleNumber assigns positions to some of the events without one, and reports whether
	// there were any.
	LifecycleNumber(ctx context.Context) (bool, error)
	// LifecycleDelete deletes some of the events from before a time, and reports whether others are
	// left.
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
