package activities

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/overwinter-dev/overwinter/internal/sandbox"
	"github.com/overwinter-dev/overwinter/internal/session"
)

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

// snapshot makes a snapshot of a session's sandbox and records it. The intent is
// recorded first, so that an image whose id is lost is known of. failed classifies an
// error of the sandbox.
func (w *work) snapshot(ctx context.Context, sessionID string, generation int64, sb *sandbox.Sandbox, failed func(context.Context, *sandbox.Sandbox, error) error) (string, error) {
	intent := session.ImageIntent{ID: session.NewID("img_"), SessionID: sessionID, Generation: generation, Source: sb.ID(), Lifetime: snapshotLifetime}
	if err := w.Store.ImageIntend(ctx, intent); err != nil {
		return "", stored(err)
	}
	image, err := sb.Snapshot(ctx, sandbox.SnapshotSpec{Timeout: w.SnapshotTimeout, Lifetime: snapshotLifetime})
	if err != nil {
		switch sandbox.CodeOf(err) {
		case sandbox.Timeout, sandbox.Unavailable: // it may still come to be
		default:
			if endErr := w.Store.ImageIntentEnd(ctx, intent.ID); endErr != nil {
				w.Logger.WarnContext(ctx, "the intent of a snapshot that failed stays recorded",
					slog.String("session_id", sessionID), slog.Any("error", endErr))
			}
		}
		return "", failed(ctx, sb, fmt.Errorf("snapshot: %w", err))
	}
	return image, stored(w.Store.SnapshotMade(ctx, intent, image))
}

// collect finds the images that nothing needs and deletes them.
func (l *look) collect(ctx context.Context) error {
	return errors.Join(
		l.settleExits(ctx),
		l.Store.SnapshotsAge(ctx, snapshotAge),
		l.audit(ctx),
		l.findStrays(ctx),
		l.deleteImages(ctx, func(ctx context.Context) ([]string, error) { return l.Store.SnapshotsCondemn(ctx, collectPage) }, l.Store.SnapshotsForget),
		l.deleteImages(ctx, func(ctx context.Context) ([]string, error) {
			return l.Store.BaseImagesCondemn(ctx, baseAge, collectPage)
		}, l.Store.BaseImagesForget),
		l.renew(ctx),
	)
}

// renew copies the snapshots of sleeping sessions that would expire before long.
// Sessions that are awake get a new snapshot when they go to sleep.
func (l *look) renew(ctx context.Context) error {
	due, err := l.Store.SnapshotsRenew(ctx, renewBefore, renewAtOnce)
	if err != nil {
		return err
	}
	return each(ctx, due, func(ctx context.Context, r session.Renewal) error {
		intent := session.ImageIntent{
			ID: session.NewID("img_"), SessionID: r.SessionID, Generation: r.Generation, Source: r.SnapshotID, Lifetime: snapshotLifetime,
		}
		if err := l.Store.ImageIntend(ctx, intent); err != nil {
			return err
		}
		image, err := l.Sandbox.CopyImage(ctx, r.SnapshotID, r.SessionID, r.Generation, sandbox.SnapshotSpec{
			Timeout: l.SnapshotTimeout, Lifetime: snapshotLifetime,
		})
		if err != nil {
			return fmt.Errorf("renew snapshot %s of session %s: %w", r.SnapshotID, r.SessionID, err)
		}
		if err := l.Store.SnapshotReplace(ctx, intent, r.SnapshotID, image); err != nil {
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
		due, err := l.Store.ExitImagesDue(ctx, collectPage)
		if err != nil || len(due) == 0 {
			return err
		}
		var mu sync.Mutex
		var settled []session.ExitImage
		failed := each(ctx, due, func(ctx context.Context, e session.ExitImage) error {
			known, err := l.findExit(ctx, &e)
			if known {
				mu.Lock()
				defer mu.Unlock()
				settled = append(settled, e)
			}
			return err
		})
		if len(settled) > 0 {
			failed = errors.Join(failed, l.Store.ExitImagesSettle(ctx, settled))
		}
		if failed != nil || len(settled) == 0 {
			return failed // the others are tried again later
		}
	}
}

// findExit sets the image of an ended sandbox, and reports whether it is known.
func (l *look) findExit(ctx context.Context, e *session.ExitImage) (known bool, err error) {
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
	next, err := l.Store.SnapshotsAudit(ctx, l.cursors.audit, auditPage)
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
		_, err = l.Store.ImageIntentsForget(ctx, intentAge)
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
		stray, err := l.Store.ImagesStray(ctx, listedImages(page), snapshotAge)
		if err != nil {
			return err
		}
		if stray > 0 {
			l.Logger.WarnContext(ctx, "the provider has images that nothing here knows of; they are deleted", slog.Int("images", stray))
		}
	}
	_, err = l.Store.ImageIntentsForget(ctx, HiddenAge)
	return err
}

func listedImages(page []sandbox.ImageListing) []session.ListedImage {
	images := make([]session.ListedImage, len(page))
	for i, image := range page {
		images[i] = session.ListedImage{ID: image.ID, SessionID: image.Session, Generation: image.Generation, Exit: image.Exit}
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
			l.Logger.WarnContext(ctx, "images could not be deleted; they are tried again later", slog.Any("error", failed))
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
