package activities

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.temporal.io/sdk/activity"
	"golang.org/x/sync/errgroup"

	"github.com/overwinter-dev/overwinter/internal/sandbox"
)

const (
	// partBudget bounds each part of a reconciliation. Together the parts take less than the
	// activity's timeout. The provider's list belongs to the first part.
	partBudget = time.Minute
	// reconcilePage is how many rows one query returns.
	reconcilePage = 5000
	// reconcileParallel bounds the concurrent calls to the provider, or to Temporal.
	reconcileParallel = 16
	// reconcileErrors is how many errors of one part are reported in full.
	reconcileErrors = 5
)

// reconcileStore is the part of the store that a reconciliation compares with the provider.
type reconcileStore interface {
	reapStore
	imageStore
	attendedStore
	healthStore
	// SessionCountsFold folds the rows of the session counts.
	SessionCountsFold(ctx context.Context) error
}

// reconciler compares the provider's sandboxes and images with what sessions own.
type reconciler struct {
	*sandboxes
	*Config
	store   reconcileStore
	cursors cursors
}

// Reconcile lists the provider's sandboxes once and compares them with what the sessions own.
// Sandboxes without an owner are terminated first, while the list is read. Then unneeded images are
// deleted, the health of the remaining sandboxes is checked, and dead ones are reported to their
// workflows. Each part has its own time limit and reports its own errors; a failure in one does not
// prevent the others. The list and the rows are read in pages. Reconcile keeps 8 bytes of each
// listed sandbox until the end.
func (g *reconciler) Reconcile(ctx context.Context) (out Reconciled, err error) {
	stop := beat(ctx)
	defer stop()
	began := time.Now()
	defer func() { g.Metrics.Reconciled(time.Since(began), err) }()
	l := &look{reconciler: g}
	var (
		running *sandboxSet
		listErr error
	)
	failed := errors.Join(
		l.part(ctx, "reap", func(ctx context.Context) (err error) {
			running, listErr, err = l.reap(ctx)
			return errors.Join(listErr, err)
		}),
		l.part(ctx, "collect images", l.collect),
		// Before health is reported, because only an open workflow receives the report.
		l.part(ctx, "revive workflows", func(ctx context.Context) error { return l.revive(ctx, &l.out) }),
		l.part(ctx, "look at health", func(ctx context.Context) error {
			if listErr != nil {
				return nil //nolint:nilerr // reported above; the health of sandboxes that were not listed is unknown
			}
			return l.health(ctx, running)
		}),
		l.part(ctx, "add up counts", g.store.SessionCountsFold),
	)
	out = l.out
	if failed == nil && (out.Reported > 0 || out.Terminated > 0 || out.Deleted > 0) {
		activity.GetLogger(ctx).Info("reconciled", "reported", out.Reported, "terminated", out.Terminated, "deleted", out.Deleted)
	}
	return out, failed
}

// look is one reconciliation.
type look struct {
	*reconciler

	mu  sync.Mutex
	out Reconciled
}

// count changes the result. Parts of a look run in parallel.
func (l *look) count(change func(out *Reconciled)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change(&l.out)
}

// part runs one part of a reconciliation within its time limit.
func (l *look) part(ctx context.Context, name string, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, partBudget, fmt.Errorf("%s took more than %v", name, partBudget))
	defer cancel()
	err := do(ctx)
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("%w: %w", context.Cause(ctx), err)
	}
	return err
}

// each calls do for every item, reconcileParallel at a time, and returns the first
// errors and the number of the others.
func each[T any](ctx context.Context, items []T, do func(context.Context, T) error) error {
	_, err := eachFirst(ctx, items, do)
	return err
}

// eachFirst is each, and also returns the number of items that it started before ctx ended.
func eachFirst[T any](ctx context.Context, items []T, do func(context.Context, T) error) (begun int, err error) {
	var (
		failed failures
		group  errgroup.Group
	)
	group.SetLimit(reconcileParallel)
	for _, item := range items {
		if ctx.Err() != nil {
			failed.add(context.Cause(ctx))
			break
		}
		begun++
		group.Go(func() error {
			failed.add(do(ctx, item))
			return nil
		})
	}
	_ = group.Wait() // errors are collected
	return begun, failed.err()
}

func omittedErrors(n int) error { return fmt.Errorf("and %d more", n) }

// isUnavailable reports whether err means that the provider is unavailable, rather than that the
// request failed.
func isUnavailable(err error) bool {
	switch sandbox.CodeOf(err) {
	case sandbox.Unavailable, sandbox.Throttled, sandbox.Timeout, sandbox.Denied:
		return true
	}
	return false
}
