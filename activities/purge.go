package activities

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/image"
	"github.com/overwinter-dev/overwinter/internal/purge"
	"github.com/overwinter-dev/overwinter/internal/sandbox"
	"github.com/overwinter-dev/overwinter/internal/session"
)

const (
	// purgesAtOnce is how many sessions a worker erases at once.
	purgesAtOnce = 4
	// purgeTimeout bounds one pass over one session. A later pass does the rest.
	purgeTimeout = 2 * time.Minute
	// purgeLease is how long a worker has a purge, unless it renews the lease. It is renewed every
	// purgeRenew, which is shorter than the shortest lease that PurgesTake gives.
	purgeLease = 15 * time.Second
	purgeRenew = time.Second
	// purgeSettle is the pause between the deletion of a session's row and the last query to
	// Temporal. A request that has read the row takes less time to signal.
	purgeSettle = 30 * time.Second
	// purgesOpen bounds the open purges of retention.
	purgesOpen = 200
	// retainSessions is how many sessions one pass checks for old events.
	retainSessions = 2000
	// compactEvents bounds the events that one pass of the compaction reads.
	compactEvents = 200_000
	// retainEvery is the pause between two passes of retention.
	retainEvery = 30 * time.Second
)

// PurgeStore is the part of the store for purges and retention. Every method may be repeated.
type PurgeStore interface {
	// PurgesTake returns purges that are due, each to one caller for a while.
	PurgesTake(ctx context.Context, limit int) ([]purge.Purge, error)
	// PurgeRenew keeps other callers from taking a purge for at least a while.
	PurgeRenew(ctx context.Context, sessionID string, lease time.Duration) error
	// PurgeSet moves a purge to a state, never to an earlier one, and makes it due after a pause. A
	// session counts as erased only after the last check of its workflow, if no workflow has begun
	// since.
	PurgeSet(ctx context.Context, sessionID string, state purge.State, after time.Duration) error
	// PurgeContent erases all data of a terminated session except the records of its images.
	PurgeContent(ctx context.Context, sessionID string) error
	// ImageIntentsOf returns the IDs of the intents of a session's images that are still recorded.
	ImageIntentsOf(ctx context.Context, sessionID string) ([]string, error)
	// PurgeImages marks a session's images for deletion and returns how many may be left.
	PurgeImages(ctx context.Context, sessionID string) (int64, error)
	// PurgeSession erases the rest, the row last.
	PurgeSession(ctx context.Context, sessionID string) error
	// PurgeTerminated requests the purge of sessions that were terminated longer than age ago.
	PurgeTerminated(ctx context.Context, age time.Duration, limit int) (int, error)
	// EventsRetain deletes events older than age of some hibernated or terminated sessions, those
	// after a number.
	EventsRetain(ctx context.Context, age time.Duration, after int64, limit int) (next, pruned int64, err error)
	// EventsCompact deletes the deltas older than age whose whole text is in a later event, for
	// some sessions, those after a number. It reads about budget events.
	EventsCompact(ctx context.Context, age time.Duration, after int64, limit, budget int) (next, dropped int64, err error)

	SessionGet(ctx context.Context, sessionID string) (session.Session, error)
	CommandSubmit(ctx context.Context, c session.Command) (session.Commanded, error)
	SandboxesOpen(ctx context.Context, sessionID string) ([]session.SandboxRow, error)
	ImagesStray(ctx context.Context, listed []image.Listed, age time.Duration) (int, error)
	ImageIntentEnd(ctx context.Context, intentID string) error
	SnapshotsCondemn(ctx context.Context, limit int) ([]string, error)
	SnapshotsForget(ctx context.Context, ids []string) error
}

// PurgeWorkflows stops and erases workflows of sessions.
type PurgeWorkflows interface {
	SignalStop(ctx context.Context, sessionID string) error
	// Erase deletes all runs of a session's workflow, and reports whether it found any.
	Erase(ctx context.Context, sessionID string) (found bool, err error)
}

// Retention has the ages after which data is deleted. Zero keeps it forever.
type Retention struct {
	Terminated time.Duration // sessions, after they were terminated
	Events     time.Duration // events of sessions that sleep or are terminated
	Deltas     time.Duration // deltas whose whole text is in a later event
}

// Purger erases sessions whose purge was requested, and applies the retention. Every worker has
// one. One worker at a time has a purge; if it is lost, another takes over within a minute. Every
// step may be repeated.
type Purger struct {
	*reconciler
	store     PurgeStore
	workflows PurgeWorkflows
	retention Retention

	afterSession   int64 // of retention
	afterCompacted int64 // of compaction
	retainAt       time.Time
}

// NewPurger returns a purger with the configuration of the activities.
func NewPurger(c *Control, store PurgeStore, workflows PurgeWorkflows, r Retention) *Purger {
	return &Purger{reconciler: c.reconciler, store: store, workflows: workflows, retention: r}
}

// Pass advances the purges that are due by one step, and applies the retention to some sessions.
func (p *Purger) Pass(ctx context.Context) error {
	retained := p.retain(ctx)
	due, err := p.store.PurgesTake(ctx, purgesAtOnce)
	if err != nil {
		return errors.Join(retained, err)
	}
	var group errgroup.Group
	for _, next := range due {
		group.Go(func() error {
			ctx, cancel := context.WithTimeout(ctx, purgeTimeout)
			defer cancel()
			stop := p.renew(ctx, next.SessionID)
			defer stop()
			if err := p.step(ctx, next); err != nil {
				return fmt.Errorf("purge session %s (%s): %w", next.SessionID, next.State, err)
			}
			return nil
		})
	}
	return errors.Join(retained, group.Wait())
}

// renew renews the lease of a purge until stop is called, because a pass over a large session takes
// longer than the lease. A lease that could not be renewed only costs repeated work.
func (p *Purger) renew(ctx context.Context, id string) (stop func()) {
	return repeatedly(ctx, purgeRenew, func(ctx context.Context) {
		if err := p.store.PurgeRenew(ctx, id, purgeLease); err != nil && ctx.Err() == nil {
			p.Logger.WarnContext(ctx, "could not renew a purge", slog.String("session_id", id), slog.Any("error", err))
		}
	})
}

// step advances a purge by as many states as possible.
func (p *Purger) step(ctx context.Context, next purge.Purge) error {
	id := next.SessionID
	switch next.State {
	case purge.Stopping:
		stopped, err := p.stop(ctx, id)
		if err != nil || !stopped {
			return err
		}
		if err := p.store.PurgeSet(ctx, id, purge.Erasing, time.Minute); err != nil {
			return err
		}
		fallthrough
	case purge.Erasing:
		erased, err := p.erase(ctx, id)
		if err != nil {
			return err
		}
		if !erased {
			return p.store.PurgeSet(ctx, id, purge.Erasing, time.Second)
		}
		return p.store.PurgeSet(ctx, id, purge.Checking, purgeSettle)
	case purge.Checking:
		found, err := p.workflows.Erase(ctx, id)
		if err != nil || found {
			return err
		}
		p.Logger.InfoContext(ctx, "erased a session", slog.String("session_id", id))
		return p.store.PurgeSet(ctx, id, purge.Erased, 0)
	}
	return nil
}

// stop requests the stop of a session and reports whether it has ended. Its workflow has then
// terminated the sandbox and cancelled the queued prompts.
func (p *Purger) stop(ctx context.Context, id string) (stopped bool, err error) {
	s, err := p.store.SessionGet(ctx, id)
	if err != nil {
		return failure.CodeOf(err) == failure.NoSession, ignoreNoSession(err)
	}
	if s.Status.Final() {
		return true, nil
	}
	if _, err := p.store.CommandSubmit(ctx, session.Command{SessionID: id, Kind: session.CommandStop}); err != nil {
		return false, err
	}
	return false, p.workflows.SignalStop(ctx, id)
}

// erase erases as much of the session as possible and reports whether the erasure is complete. A
// failure does not prevent the rest. The row is erased last: while it exists, the erasure is known
// to be incomplete.
func (p *Purger) erase(ctx context.Context, id string) (erased bool, err error) {
	sandboxes := p.endSandboxes(ctx, id)
	content := ignoreNoSession(p.store.PurgeContent(ctx, id))
	images, imagesErr := p.deleteImagesOf(ctx, id)
	helpers := p.endHelpers(ctx, id)
	found, workflowErr := p.workflows.Erase(ctx, id)
	if err := errors.Join(sandboxes, content, imagesErr, helpers, workflowErr); err != nil || images > 0 || found {
		return false, err
	}
	return true, p.store.PurgeSession(ctx, id)
}

func (p *Purger) endSandboxes(ctx context.Context, id string) error {
	rows, err := p.store.SandboxesOpen(ctx, id)
	if err != nil {
		return err
	}
	var failed error
	for _, row := range rows {
		failed = errors.Join(failed, p.end(ctx, row, "the session is purged"))
	}
	return failed
}

// endHelpers terminates the sandboxes in which images of the session are read or copied. They have no rows: if
// their worker was killed, they would keep the files until they end by themselves.
func (p *Purger) endHelpers(ctx context.Context, id string) error {
	var failed error
	for s, err := range p.Sandbox.ListOf(ctx, id) {
		if err != nil {
			return errors.Join(failed, err)
		}
		if s.Role != "" {
			failed = errors.Join(failed, p.Sandbox.Open(s.ID).Terminate(ctx))
		}
	}
	return failed
}

// deleteImagesOf deletes due images at the provider, including those of the session, and returns
// how many of the session may be left.
func (p *Purger) deleteImagesOf(ctx context.Context, id string) (int64, error) {
	if err := p.findLost(ctx, id); err != nil {
		return 0, err
	}
	left, err := p.store.PurgeImages(ctx, id)
	if err != nil || left == 0 {
		return left, err
	}
	l := &look{reconciler: p.reconciler}
	err = errors.Join(
		l.settleExits(ctx),
		l.deleteImages(ctx, func(ctx context.Context) ([]string, error) { return p.store.SnapshotsCondemn(ctx, collectPage) }, p.store.SnapshotsForget),
	)
	if err != nil {
		return left, err
	}
	return p.store.PurgeImages(ctx, id)
}

// findLost lists the images of a session if an ID may have been lost with a worker or an answer,
// and marks those without a record for deletion. If the provider cannot list images, the intents
// stay recorded until their images have expired.
func (p *Purger) findLost(ctx context.Context, id string) error {
	intents, err := p.store.ImageIntentsOf(ctx, id)
	if err != nil || len(intents) == 0 {
		return err
	}
	listed, err := p.Sandbox.ListImagesOf(ctx, id)
	if sandbox.CodeOf(err) == sandbox.Unsupported {
		return nil
	}
	if err != nil {
		return err
	}
	for page := range slices.Chunk(listed, reconcilePage) {
		if _, err := p.store.ImagesStray(ctx, listedImages(page), snapshotAge); err != nil {
			return err
		}
	}
	for _, intent := range intents {
		if err := p.store.ImageIntentEnd(ctx, intent); err != nil {
			return err
		}
	}
	return nil
}

// retain applies the retention to a bounded number of sessions.
func (p *Purger) retain(ctx context.Context) error {
	if time.Now().Before(p.retainAt) {
		return nil
	}
	p.retainAt = time.Now().Add(retainEvery)
	var failed error
	if p.retention.Terminated > 0 {
		n, err := p.store.PurgeTerminated(ctx, p.retention.Terminated, purgesOpen)
		if n > 0 {
			p.Logger.InfoContext(ctx, "purging terminated sessions whose retention has expired", slog.Int("sessions", n))
		}
		failed = err
	}
	if p.retention.Events > 0 {
		next, pruned, err := p.store.EventsRetain(ctx, p.retention.Events, p.afterSession, retainSessions)
		p.afterSession = next
		if pruned > 0 {
			p.Logger.InfoContext(ctx, "deleted old events", slog.Int64("events", pruned))
		}
		failed = errors.Join(failed, err)
	}
	if p.retention.Deltas > 0 {
		next, dropped, err := p.store.EventsCompact(ctx, p.retention.Deltas, p.afterCompacted, retainSessions, compactEvents)
		p.afterCompacted = next
		if dropped > 0 {
			p.Logger.InfoContext(ctx, "dropped deltas of complete blocks", slog.Int64("events", dropped))
		}
		failed = errors.Join(failed, err)
	}
	return failed
}

// ignoreNoSession returns nil if err is that the session does not exist, and err otherwise.
func ignoreNoSession(err error) error {
	if failure.CodeOf(err) == failure.NoSession {
		return nil
	}
	return err
}
