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
	// ImageIntentsForget deletes intents older than age.
	ImageIntentsForget(ctx context.Context, age time.Duration) (int64, error)
	// SnapshotsAge marks snapshots older than age as unneeded if no bundle was made of them.
	SnapshotsAge(ctx context.Context, age time.Duration) error
	// SnapshotsAudit checks kept snapshots after an id for marks that were missed, and
	// returns where to continue; "" at the end.
	SnapshotsAudit(ctx context.Context, after string, limit int) (next string, err error)
	// SnapshotsCondemn returns unneeded snapshots to delete. No bundle can be made of them any
	// more. One that is not forgotten is returned again after a growing pause.
	SnapshotsCondemn(ctx context.Context, limit int) ([]string, error)
	// SnapshotsForget records that images are deleted at the provider.
	SnapshotsForget(ctx context.Context, ids []string) error
	// SnapshotsRenew returns snapshots that bundles need and that their provider will delete within
	// the given time, unless only awake sessions use them.
	SnapshotsRenew(ctx context.Context, within time.Duration, limit int) ([]image.Renewal, error)
	// SnapshotReplace makes bundles restore from a copy of their snapshot, except those of awake
	// sessions.
	SnapshotReplace(ctx context.Context, intent image.Intent, oldID, newID string) error
	// ExitImagesDue returns ended sandboxes whose exit image must be looked up. Those that are not
	// settled are returned again after a growing pause.
	ExitImagesDue(ctx context.Context, limit int) ([]image.Exit, error)
	// ExitImagesSettle stores the result of the lookup. Images without a bundle are unneeded.
	ExitImagesSettle(ctx context.Context, found []image.Exit) error
	// ImagesStray condemns listed images without a record, and returns their number.
	ImagesStray(ctx context.Context, listed []image.Listed, age time.Duration) (int, error)
	// BaseImagesCondemn returns unused base images whose last use is older than age.
	BaseImagesCondemn(ctx context.Context, age time.Duration, limit int) ([]string, error)
	// BaseImagesForget records that base images are deleted at the provider.
	BaseImagesForget(ctx context.Context, ids []string) error
}

const (
	// snapshotAge is the minimum age at which a snapshot without a bundle is deleted. Saving a
	// bundle takes less time.
	snapshotAge = time.Hour
	// baseAge is how long a base image is kept after its last use. The creation of a sandbox and a
	// deploy take less time.
	baseAge = 24 * time.Hour
	// exitTimeout is how long a reconciliation waits for one exit image that is still being made.
	exitTimeout = 5 * time.Second
	// exitAge is how long an exit image is looked for: providers keep it for 30 days.
	exitAge = 31 * 24 * time.Hour
	// HiddenAge is the age at which an intent without an image is taken to have one whose id was
	// lost.
	HiddenAge = time.Hour
	// snapshotLifetime is the age at which a provider deletes a snapshot by itself, such as one
	// whose id was lost in a crash. Needed snapshots are renewed long before.
	snapshotLifetime = 365 * 24 * time.Hour
	// renewBefore is how long before its expiry a snapshot is renewed. An installation may be off
	// for this long without losing a snapshot.
	renewBefore = 120 * 24 * time.Hour
	// renewAtOnce bounds the snapshots that one reconciliation renews.
	renewAtOnce = 8
	// intentAge is how long an intent is kept where images cannot be listed.
	intentAge = snapshotLifetime
	// auditPage is how many kept snapshots one reconciliation checks for a missing mark.
	auditPage = 500
	// collectPage is how many images are taken at once.
	collectPage = 500
)

// collect finds unneeded images and deletes them.
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

// renew copies needed snapshots that would expire soon. Those of awake sessions follow when they
// sleep.
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

// settleExits looks up the images that the provider made of ended sandboxes. The row of a sandbox
// ends only after its session has saved the sandbox, so an image that is in no bundle by then is
// unneeded.
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

// findExit sets the image of an ended sandbox, and reports whether the result is final.
func (l *look) findExit(ctx context.Context, e *image.Exit) (known bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, exitTimeout)
	defer cancel()
	image, err := l.Sandbox.Open(e.SandboxID).ExitSnapshot(ctx)
	switch sandbox.CodeOf(err) {
	case "":
		e.ImageID = image
		return true, nil
	case sandbox.Gone, sandbox.Unsupported, sandbox.Invalid:
		return true, nil // no image exists, and none will be made
	case sandbox.Conflict, sandbox.Timeout: // still running, or still being made
		err = nil
	}
	if time.Since(e.EndedAt) > exitAge {
		return true, nil
	}
	return false, err
}

// audit checks a page of the kept snapshots. A snapshot is marked when it is no longer needed; a
// mark that was missed, for example by an older release, is added within a few reconciliations.
func (l *look) audit(ctx context.Context) error {
	l.cursors.mu.Lock()
	defer l.cursors.mu.Unlock()
	next, err := l.store.SnapshotsAudit(ctx, l.cursors.audit, auditPage)
	if err == nil {
		l.cursors.audit = next
	}
	return err
}

// findStrays compares the images that the provider lists with the records. An image without a
// record was made by a worker that crashed, or its id was lost with the provider's answer; a young
// one may still be recorded. If images cannot be listed, an intent stays until its image has
// expired.
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
			l.Logger.WarnContext(ctx, "deleting provider images that no record references", slog.Int("images", stray))
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

// deleteImages deletes images until no due image is left, the time is up, or the provider is
// unavailable. One that cannot be deleted is retried later.
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
			case isUnavailable(err):
				unserved++
			}
			return err
		})
		if failed != nil && unserved == 0 && ctx.Err() == nil {
			l.Logger.WarnContext(ctx, "could not delete images; retrying later", slog.Any("error", failed))
			failed = nil
		}
		if len(deleted) > 0 {
			// Deletions are recorded even if the time is up.
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
