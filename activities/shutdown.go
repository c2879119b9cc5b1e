package activities

import (
	"context"
	"sync/atomic"

	"go.temporal.io/sdk/temporal"

	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// Shutdown is set once the installation stops with this worker: awake sessions hibernate, and no
// session gets a sandbox and no prompt a run. The zero value and nil are not set.
type Shutdown struct{ begun atomic.Bool }

// Begin sets s. Work that has begun continues.
func (s *Shutdown) Begin() { s.begun.Store(true) }

func (s *Shutdown) isSet() bool { return s != nil && s.begun.Load() }

// errShutdown prevents a session from waking: its workflow retries until another worker allows it.
func errShutdown() error {
	return temporal.NewApplicationErrorWithOptions("the installation stops; the session wakes when it runs again", HandOver,
		temporal.ApplicationErrorOptions{Category: temporal.ApplicationErrorCategoryBenign})
}

// hibernateFirst hibernates a session that is about to run a prompt.
func (g *records) hibernateFirst(ctx context.Context, sessionID string) error {
	_, err := g.store.CommandSubmit(ctx, session.Command{SessionID: sessionID, Kind: session.CommandHibernate, Reason: session.ReasonShutdown})
	if failure.CodeOf(err) == failure.IllegalState {
		return nil // no prompt is run in that case either
	}
	return err
}
