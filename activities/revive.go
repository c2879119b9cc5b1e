package activities

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/overwinter-dev/overwinter/internal/backlog"
)

// attendedStore lists the sessions that need an open workflow.
type attendedStore interface {
	// Attended returns a page of the loaded sessions with pending work, ordered by id, each with
	// its open run if that has been silent for the time quiet.
	Attended(ctx context.Context, after string, quiet time.Duration, limit int) ([]backlog.Attended, error)
}

const (
	// attendedPage is how many sessions are read at a time.
	attendedPage = 500
	// attendedAtOnce bounds the concurrent queries for workflows.
	attendedAtOnce = 16
	// quietRun is how long an open run may be silent before its workflow is queried.
	quietRun = 20 * time.Second
)

// revive checks that every loaded session with pending work has an open workflow that knows the
// session's open run. It starts closed workflows and signals the others to read their session
// again.
func (g *reconciler) revive(ctx context.Context, out *Reconciled) error {
	var (
		mu     sync.Mutex
		failed error
		after  string
	)
	for {
		page, err := g.store.Attended(ctx, after, quietRun, attendedPage)
		if err != nil {
			return errors.Join(failed, stored(err))
		}
		var all errgroup.Group
		all.SetLimit(attendedAtOnce)
		for _, s := range page {
			all.Go(func() error {
				revived, err := g.Signaler.Revive(ctx, s)
				mu.Lock()
				defer mu.Unlock()
				failed = errors.Join(failed, err)
				if revived {
					out.Revived++
					g.Logger.WarnContext(ctx, "revived a session's workflow", slog.String("session_id", s.SessionID), slog.String("run_id", s.RunID))
				}
				return nil
			})
		}
		all.Wait() //nolint:errcheck // errors are joined, so that one does not stop the others
		if len(page) < attendedPage || ctx.Err() != nil {
			return failed
		}
		after = page[len(page)-1].SessionID
	}
}
