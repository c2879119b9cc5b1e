package activities

import (
	"context"
	"sync/atomic"

	"go.temporal.io/sdk/temporal"

	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// Shutdown is set once the installation stops with this worker: no session gets a sandbox and no prompt a run any more, while those
// that are awake hibernate. The zero value is not set, and so is nil.
type Shutdown struct{ begun atomic.Bool }

// Begin sets it. What has begun before continues.
func (s *Shutdown) Begin() { s.begun.Store(true) }

func (s *Shutdown) isSet() bool { return s != nil && s.begun.Load() }

// errShutdown is what keeps a sleeping session asleep: its workflow tries again until another worker lets it.
func errShutdown() error {
	return temporal.NewApplicationErrorWithOptions("the installation stops; the session wakes when it runs again", HandOver,
		temporal.ApplicationErrorOptions{Category: temporal.ApplicationErrorCategoryBenign})
}

// hibernateFirst has a session hibernate that is about to run a prompt.
func (g *records) hibernateFirst(ctx context.Context, sessionID string) error {
	_, err := g.store.CommandSubmit(ctx, session.Command{SessionID: sessionID, Kind: session.CommandHibernate, Reason: session.ReasonShutdown})
	if failure.CodeOf(err) == failure.IllegalState {
		return nil // then no prompt is run either
	}
	return err
}
