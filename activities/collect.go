package activities

import (
	"context"
	"errors"
	"time"

	"github.com/overwinter-dev/overwinter/internal/sandbox"
)

// snapshotAge is how old a snapshot must be that no bundle was made of before it
// is deleted: longer than saving a bundle can take.
const snapshotAge = time.Hour

// snapshotsAtOnce bounds the deletions of one look.
const snapshotsAtOnce = 100

func (w *work) deleteSnapshots(ctx context.Context, out *Reconciled) error {
	ids, err := w.Store.SnapshotsUnreferenced(ctx, snapshotAge, snapshotsAtOnce)
	if err != nil {
		return err
	}
	var failed error
	for _, id := range ids {
		if err := w.Sandbox.DeleteImage(ctx, id); err != nil && sandbox.CodeOf(err) != sandbox.Gone {
			failed = errors.Join(failed, err)
			continue
		}
		if err := w.Store.SnapshotForget(ctx, id); err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		out.Deleted++
	}
	return failed
}
