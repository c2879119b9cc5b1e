package worker_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/lifecycle"
	"github.com/overwinter-dev/overwinter/worker"
)

// ordered counts its calls, and fails at first.
type ordered struct {
	mu      sync.Mutex
	fails   int
	waiting int
	before  []time.Time
	done    func(*ordered)
}

func (o *ordered) LifecycleNumber(context.Context) (bool, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.fails > 0 {
		o.fails--
		return false, errors.New("down")
	}
	o.waiting = max(o.waiting-1, 0)
	return o.waiting > 0, nil
}

func (o *ordered) LifecycleDelete(_ context.Context, before time.Time) (bool, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.before = append(o.before, before)
	if len(o.before) == 2 {
		o.done(o)
	}
	return len(o.before) < 2, nil
}

func TestLifecycleEventsAreOrderedAndDeletedDespiteFailures(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	o := &ordered{fails: 3, waiting: 5}
	o.done = func(*ordered) { cancel() }
	worker.RunLifecycle(ctx, worker.Lifecycle{Store: o, Every: time.Millisecond})
	require.Zero(t, o.waiting)
	require.Len(t, o.before, 2)
	require.WithinDuration(t, time.Now().Add(-lifecycle.Retention), o.before[0], time.Minute)
	worker.RunLifecycle(t.Context(), worker.Lifecycle{})
}
