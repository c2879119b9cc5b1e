package activities

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/overwinter-dev/overwinter/internal/image"
	"github.com/overwinter-dev/overwinter/internal/sandbox"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// imageStore knows which images are needed.
type imageStore interface {
	ImageIntend(ctx context.Context, intent image.Intent) error
	// ImageIntentsForget forgets intents older than age.
	ImageIntentsForget(ctx context.Context, age time.Duration) (int64, error)
	// SnapshotsAge marks snapshots older than age that no bundle was made of as unneeded.
	SnapshotsAge(ctx context.Context, age time.Duration) error
	// SnapshotsAudit checks kept snapshots after an id for marks that were missed, and
	// returns where to continue; "" at the end.
	SnapshotsAudit(ctx context.Context, after string, limit int) (next string, err error)
	// SnapshotsCondemn returns unneeded snapshots to delete, of which no bundle can be
	// made any more. One that is not forgotten is returned again after a growing pause.
	SnapshotsCondemn(ctx context.Context, limit int) ([]string, error)
	// SnapshotsForget records that images are deleted at the provider.
	SnapshotsForget(ctx context.Context, ids []string) error
	// SnapshotsRenew returns snapshots that sleeping sessions wake from and that their
	// provider deletes within the time.
	SnapshotsRenew(ctx context.Context, within time.Duration, limit int) ([]image.Renewal, error)
	// SnapshotReplace has a session wake from a copy of its snapshot, unless it has moved on.
	SnapshotReplace(ctx context.Context, intent image.Intent, oldID, newID string) error
	// ExitImagesDue returns ended sandboxes whose image is to be found. One that is
	// not settled is returned again after a growing pause.
	ExitImagesDue(ctx context.Context, limit int) ([]image.Exit, error)
	// ExitImagesSettle stores what was found. Images without a bundle are unneeded.
	ExitImagesSettle(ctx context.Context, found []image.Exit) error
	// ImagesStray condemns listed images that nothing knows of, and returns how many.
	ImagesStray(ctx context.Context, listed []image.Listed, age time.Duration) (int, error)
	// BaseImagesCondemn returns base images that nothing uses, last used before age.
	BaseImagesCondemn(ctx context.Context, age time.Duration, limit int) ([]string, error)
	// BaseImagesForget records that base images are deleted at the provider.
	BaseImagesForget(ctx context.Context, ids []string) error
}

const (
	// snapshotAge is how old a snapshot must be that no bundle was made of before it
	// is deleted: longer than saving a bundle can take.
	snapshotAge = time.Hour
	// baseAge is how long a base image is kept after its last use: longer than a
	// sandbox's creation can take, and than a deploy takes.
	baseAge = 24 * time.Hour
	// exitTimeout is how long a look waits for one exit image that is still being made.
	exitTimeout = 5 * time.Second
	// exitAge is how long an exit image is looked for: providers keep it for 30 days.
	exitAge = 31 * 24 * time.Hour
	// HiddenAge is how old the intent of an image must be to count as one whose
	// image may exist although its id was lost.
	HiddenAge = time.Hour
	// snapshotLifetime is when a provider deletes a snapshot that we have not: one that
	// a crash hid. Snapshots that are needed are renewed long before.
	snapshotLifetime = 365 * 24 * time.Hour
	// renewBefore is how long before its end a snapshot is renewed. An installation may
	// be off for so long without losing one.
	renewBefore = 120 * 24 * time.Hour
	// renewAtOnce is how many snapshots one look renews.
	renewAtOnce = 8
	// intentAge is how long an intent is kept where images cannot be listed.
	intentAge = snapshotLifetime
	// auditPage is how many kept snapshots one look checks for a mark that was missed.
	auditPage = 500
	// collectPage is how many images are taken at once.
	collectPage = 500
)

// collect finds the images that nothing needs and deletes them.
func (l *look) collect(ctx context.Context) error {
	return errors.Join(
		l.settleExits(ctx),
		l.store.SnapshotsAge(ctx, snapshotAge),
		l.audit(ctx),
		l.findStrays(ctx),
		l.deleteImages(ctx, func(ctx context.Context) ([]string, error) { return l.store.SnapshotsCondemn(ctx, collectPage) }, l.store.SnapshotsForget),
		l.deleteImages(ctx, func(ctx context.Context) ([]string, error) {
			return l.store.BaseImagesCondemn(ctx, baseAge, collectPage)
		}, l.store.BaseImagesForget),
		l.renew(ctx),
	)
}

// renew copies the snapshots of sleeping sessions that would expire before long.
// Sessions that are awake get a new snapshot when they go to sleep.
func (l *look) renew(ctx context.Context) error {
	due, err := l.store.SnapshotsRenew(ctx, renewBefore, renewAtOnce)
	if err != nil {
		return err
	}
	return each(ctx, due, func(ctx context.Context, r image.Renewal) error {
		intent := image.Intent{
			ID: session.NewID("img_"), SessionID: r.SessionID, Generation: r.Generation, Source: r.SnapshotID, Lifetime: snapshotLifetime,
		}
		if err := l.store.ImageIntend(ctx, intent); err != nil {
			return err
		}
		image, err := l.Sandbox.CopyImage(ctx, r.SnapshotID, r.SessionID, r.Generation, sandbox.SnapshotSpec{
			Timeout: l.SnapshotTimeout, Lifetime: snapshotLifetime,
		})
		if err != nil {
			return fmt.Errorf("renew snapshot %s of session %s: %w", r.SnapshotID, r.SessionID, err)
		}
		if err := l.store.SnapshotReplace(ctx, intent, r.SnapshotID, image); err != nil {
			return err
		}
		l.Logger.InfoContext(ctx, "renewed a snapshot", slog.String("session_id", r.SessionID),
			slog.String("snapshot_id", image), slog.String("replaces", r.SnapshotID))
		return nil
	})
}

// settleExits looks for the images that the provider made of ended sandboxes. The
// row of a sandbox is ended only when its session has taken what it wants, so an
// image that no bundle has by then is unneeded.
func (l *look) settleExits(ctx context.Context) error {
	for {
		due, err := l.store.ExitImagesDue(ctx, collectPage)
		if err != nil || len(due) == 0 {
			return err
		}
		var mu sync.Mutex
		var settled []image.Exit
		failed := each(ctx, due, func(ctx context.Context, e image.Exit) error {
			known, err := l.findExit(ctx, &e)
			if known {
				mu.Lock()
				defer mu.Unlock()
				settled = append(settled, e)
			}
			return err
		})
		if len(settled) > 0 {
			failed = errors.Join(failed, l.store.ExitImagesSettle(ctx, settled))
		}
		if failed != nil || len(settled) == 0 {
			return failed // the others are tried again later
		}
	}
}

// findExit sets the image of an ended sandbox, and reports whether it is known.
func (l *look) findExit(ctx context.Context, e *image.Exit) (known bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, exitTimeout)
	defer cancel()
	image, err := l.Sandbox.Open(e.SandboxID).ExitSnapshot(ctx)
	switch sandbox.CodeOf(err) {
	case "":
		e.ImageID = image
		return true, nil
	case sandbox.Gone, sandbox.Unsupported, sandbox.Invalid:
		return true, nil // there is none, and never will be
	case sandbox.Conflict, sandbox.Timeout: // still running, or still being made
		err = nil
	}
	if time.Since(e.EndedAt) > exitAge {
		return true, nil
	}
	return false, err
}

// audit checks a page of what is kept. Marks are made where a need ends; one that
// was missed, as by an older release, is made up for within some looks.
func (l *look) audit(ctx context.Context) error {
	l.cursors.mu.Lock()
	defer l.cursors.mu.Unlock()
	next, err := l.store.SnapshotsAudit(ctx, l.cursors.audit, auditPage)
	if err == nil {
		l.cursors.audit = next
	}
	return err
}

// findStrays compares the images that the provider lists with what is recorded.
// What no record knows was hidden by a crash, or by an answer that was lost. A young
// one may be about to be recorded. Where images cannot be listed, an intent stays
// until its image has expired.
func (l *look) findStrays(ctx context.Context) error {
	listed, err := l.Sandbox.ListImages(ctx)
	if sandbox.CodeOf(err) == sandbox.Unsupported {
		_, err = l.store.ImageIntentsForget(ctx, intentAge)
		return err
	}
	if err != nil {
		return err
	}
	old := listed[:0]
	for _, image := range listed {
		age := l.OrphanAge
		if image.Role != "" {
			age = HiddenAge // a base image is recorded when it is first used
		}
		if time.Since(image.Created) > age {
			old = append(old, image)
		}
	}
	for page := range slices.Chunk(old, reconcilePage) {
		stray, err := l.store.ImagesStray(ctx, listedImages(page), snapshotAge)
		if err != nil {
			return err
		}
		if stray > 0 {
			l.Logger.WarnContext(ctx, "deleting images of the provider that no record names", slog.Int("images", stray))
		}
	}
	_, err = l.store.ImageIntentsForget(ctx, HiddenAge)
	return err
}

func listedImages(page []sandbox.ImageListing) []image.Listed {
	images := make([]image.Listed, len(page))
	for i, at := range page {
		images[i] = image.Listed{ID: at.ID, SessionID: at.Session, Generation: at.Generation, Exit: at.Exit}
	}
	return images
}

// deleteImages deletes images until none is left whose turn it is, the time is over,
// or the provider does not serve. One that cannot be deleted is tried again later.
func (l *look) deleteImages(ctx context.Context, take func(context.Context) ([]string, error), forget func(context.Context, []string) error) error {
	for {
		ids, err := take(ctx)
		if err != nil || len(ids) == 0 {
			return err
		}
		var mu sync.Mutex
		var deleted []string
		unserved := 0
		failed := each(ctx, ids, func(ctx context.Context, id string) error {
			mu.Lock()
			skip := unserved >= reconcileParallel
			mu.Unlock()
			if skip {
				return nil
			}
			err := l.Sandbox.DeleteImage(ctx, id)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				deleted = append(deleted, id)
			case away(err):
				unserved++
			}
			return err
		})
		if failed != nil && unserved == 0 && ctx.Err() == nil {
			l.Logger.WarnContext(ctx, "could not delete images; retrying later", slog.Any("error", failed))
			failed = nil
		}
		if len(deleted) > 0 {
			// What is deleted is noted even when the time is over.
			forgetCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
			failed = errors.Join(failed, forget(forgetCtx, deleted))
			cancel()
			l.count(func(out *Reconciled) { out.Deleted += len(deleted) })
		}
		if failed != nil || len(deleted) == 0 {
			return failed
		}
	}
}
