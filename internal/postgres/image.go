package postgres

import (
	"cmp"
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/image"
	"github.com/overwinter-dev/overwinter/internal/postgres/dbsqlc"
)

// The life of an image's record:
//
//	ImageIntend ─▶ SnapshotRecord ─▶ BundleCommit ─▶ unneeded ─▶ condemned ─▶ deleted
//	SandboxEnd ──▶ ExitImagesDue ─▶ ExitImagesSettle ──▲
//
// The mark unneeded may be wrong, or missing for a while: condemning checks again whether an image
// is needed, and BundleCommit refuses condemned images.

// ImageIntend records the intent to make an image: of a sandbox of a session or, with an empty
// session, a base image. The intent ends when the image is recorded, or when it is known that none
// was made.
func (db *DB) ImageIntend(ctx context.Context, intent image.Intent) error {
	return fault("record the intent of an image", db.q.ImageIntend(ctx, db.pool, &dbsqlc.ImageIntendParams{
		ID: intent.ID, SessionID: intent.SessionID, Generation: intent.Generation, Source: intent.Source,
	}))
}

// ImageIntentEnd deletes an intent that failed.
func (db *DB) ImageIntentEnd(ctx context.Context, intentID string) error {
	return fault("end the intent of an image", db.q.ImageIntentsEnd(ctx, db.pool, intentID))
}

// ImageIntentsForget deletes intents older than age.
func (db *DB) ImageIntentsForget(ctx context.Context, age time.Duration) (int64, error) {
	n, err := db.q.ImageIntentsAge(ctx, db.pool, age.Seconds())
	return n, fault("forget old intents of images", err)
}

// SnapshotRecord stores that an image exists at the provider, before anything depends on it. It
// returns unavailable if the reconciler found the image first and took it for a stray, which is
// being deleted. An image of a session that has been purged meanwhile is stored for deletion.
func (db *DB) SnapshotRecord(ctx context.Context, sessionID string, generation int64, snapshotID string) error {
	return db.SnapshotMade(ctx, image.Intent{SessionID: sessionID, Generation: generation}, snapshotID)
}

// SnapshotMade is SnapshotRecord for an image with a recorded intent.
func (db *DB) SnapshotMade(ctx context.Context, intent image.Intent, snapshotID string) error {
	record := func() error {
		var usable bool
		insert := func(in *lookups) (err error) {
			usable, err = db.snapshotInsert(ctx, in, intent, snapshotID)
			return err
		}
		return db.inTwoTrips(ctx, "record a snapshot", []string{"begin"}, insert, func(out *pipeline) error {
			return db.snapshotInserted(ctx, out, usable, intent, snapshotID)
		})
	}
	err := record()
	if failure.CodeOf(err) == failure.NoSession { // its row was deleted during the statement
		err = record()
	}
	return err
}

func (db *DB) snapshotMade(ctx context.Context, tx dbsqlc.DBTX, intent image.Intent, snapshotID string) error {
	usable, err := db.snapshotInsert(ctx, tx, intent, snapshotID)
	if err != nil {
		return err
	}
	return db.snapshotInserted(ctx, tx, usable, intent, snapshotID)
}

func (db *DB) snapshotInsert(ctx context.Context, tx dbsqlc.DBTX, intent image.Intent, snapshotID string) (usable bool, err error) {
	p := &dbsqlc.SnapshotInsertParams{ID: snapshotID, SessionID: intent.SessionID, Generation: intent.Generation, Lifetime: intent.Lifetime.Seconds()}
	return db.q.SnapshotInsert(ctx, tx, p)
}

func (db *DB) snapshotInserted(ctx context.Context, tx dbsqlc.DBTX, usable bool, intent image.Intent, snapshotID string) error {
	if !usable {
		return failure.Errorf(failure.Unavailable, "snapshot %s is being deleted because it was recorded too late", snapshotID)
	}
	if intent.ID == "" {
		return nil
	}
	return db.q.ImageIntentsEnd(ctx, tx, intent.ID)
}

// SnapshotsRenew returns up to limit snapshots that bundles need and that their provider deletes
// within the given time. No other caller gets them for an hour. Those that only awake sessions use
// are left until one of them sleeps.
func (db *DB) SnapshotsRenew(ctx context.Context, within time.Duration, limit int) ([]image.Renewal, error) {
	rows, err := db.q.SnapshotsRenew(ctx, db.pool, &dbsqlc.SnapshotsRenewParams{Seconds: within.Seconds(), MaxItems: int32(limit)})
	if err != nil {
		return nil, fault("choose snapshots to renew", err)
	}
	out := make([]image.Renewal, len(rows))
	for i, r := range rows {
		out[i] = image.Renewal{SnapshotID: r.ID, SessionID: r.SessionID, Generation: r.Generation}
	}
	return out, nil
}

// replaceChunk bounds the sessions whose bundles one transaction changes: a snapshot may be shared
// with thousands of forks.
const replaceChunk = 500

// SnapshotReplace makes the bundles of all sessions that sleep or are terminated restore from a copy
// of their snapshot. If there are none, or its session has been purged meanwhile, the copy is marked
// as unneeded.
func (db *DB) SnapshotReplace(ctx context.Context, intent image.Intent, oldID, newID string) error {
	var replaced int64
	err := db.inSession(ctx, "replace a snapshot", intent.SessionID, func(s *sessionTx) (err error) {
		if err := db.snapshotMade(ctx, s, intent, newID); err != nil {
			return err
		}
		if replaced, err = s.snapshotReplace(ctx, oldID, newID); err != nil {
			return err
		}
		if replaced == 0 {
			return s.q.SnapshotUnneeded(ctx, s, newID)
		}
		// The copy counts as unneeded from the start if its session is terminated.
		return s.q.SnapshotsKeep(ctx, s, []string{newID})
	})
	for err == nil && replaced >= replaceChunk {
		err = db.inTx(ctx, "replace a snapshot", pgx.TxOptions{}, func(tx pgx.Tx) (err error) {
			s := &sessionTx{Conn: tx.Conn(), q: db.q}
			replaced, err = s.snapshotReplace(ctx, oldID, newID)
			return err
		})
	}
	if failure.CodeOf(err) == failure.NoSession {
		return db.SnapshotMade(ctx, intent, newID)
	}
	return err
}

// snapshotReplace returns the number of bundles that it has changed. A fork locks the snapshot of its
// base until its commit, so it waits for forks in progress, and finds their bundles.
func (s *sessionTx) snapshotReplace(ctx context.Context, oldID, newID string) (int64, error) {
	if err := s.snapshotClaim(ctx, newID); err != nil {
		return 0, err
	}
	if _, err := s.q.SnapshotLock(ctx, s, oldID); err != nil && !isNoRows(err) {
		return 0, err
	}
	replaced, err := s.q.SnapshotReplace(ctx, s, &dbsqlc.SnapshotReplaceParams{OldID: oldID, NewID: newID, MaxItems: replaceChunk})
	if err != nil || replaced == 0 {
		return replaced, err
	}
	return replaced, s.q.SnapshotReplaced(ctx, s, oldID)
}

// SnapshotsAge marks snapshots as unneeded that are older than age and have no bundle.
func (db *DB) SnapshotsAge(ctx context.Context, age time.Duration) error {
	return fault("mark snapshots without a bundle", db.q.SnapshotsAge(ctx, db.pool, age.Seconds()))
}

// SnapshotsAudit checks up to limit kept snapshots after an id for missing marks. It returns the
// last id that it checked, "" at the end.
func (db *DB) SnapshotsAudit(ctx context.Context, after string, limit int) (next string, err error) {
	ids, err := db.q.SnapshotsAudit(ctx, db.pool, &dbsqlc.SnapshotsAuditParams{AfterID: after, MaxItems: int32(limit)})
	if err != nil || len(ids) < limit {
		return "", fault("audit snapshots", err)
	}
	return ids[len(ids)-1], nil
}

// SnapshotsCondemn returns up to limit snapshots to delete. No bundle can refer to them from then
// on. A snapshot that is not forgotten is returned again after a growing pause; until then no other
// caller gets it.
func (db *DB) SnapshotsCondemn(ctx context.Context, limit int) (ids []string, err error) {
	err = db.inTx(ctx, "choose snapshots to delete", pgx.TxOptions{}, func(tx pgx.Tx) error {
		due, err := db.q.SnapshotsDue(ctx, tx, int32(limit))
		if err != nil || len(due) == 0 {
			return err
		}
		// A bundle may have used a snapshot since it was marked. Now that they are locked, a new
		// statement checks again: it sees all commits before it began.
		if ids, err = db.q.SnapshotsCondemn(ctx, tx, due); err != nil {
			return err
		}
		return db.q.SnapshotsKeep(ctx, tx, due)
	})
	return ids, err
}

// SnapshotsForget records that images are deleted at the provider. It also deletes bundles of them
// that are no longer needed.
func (db *DB) SnapshotsForget(ctx context.Context, ids []string) error {
	return db.inTx(ctx, "forget snapshots", pgx.TxOptions{}, func(tx pgx.Tx) error {
		return cmp.Or(db.q.SnapshotsForget(ctx, tx, ids), db.q.BundlesForget(ctx, tx, ids))
	})
}

// ExitImageExpect schedules the search for the exit image of a sandbox that has no row.
func (db *DB) ExitImageExpect(ctx context.Context, e image.Exit) error {
	return fault("expect an exit image", db.q.ExitImageExpect(ctx, db.pool, &dbsqlc.ExitImageExpectParams{
		SandboxID: e.SandboxID, SessionID: e.SessionID, Generation: e.Generation,
	}))
}

// ExitImagesDue returns up to limit ended sandboxes whose exit image must be found. One that is not
// settled is returned again after a growing pause.
func (db *DB) ExitImagesDue(ctx context.Context, limit int) ([]image.Exit, error) {
	rows, err := db.q.ExitImagesDue(ctx, db.pool, int32(limit))
	if err != nil {
		return nil, fault("choose exit images", err)
	}
	out := make([]image.Exit, len(rows))
	for i, r := range rows {
		out[i] = image.Exit{SandboxID: r.SandboxID, SessionID: r.SessionID, Generation: r.Generation, EndedAt: r.EndedAt.UTC()}
	}
	return out, nil
}

// ExitImagesSettle stores the image of each sandbox, or that the sandbox has none. Images without a
// bundle become unneeded.
func (db *DB) ExitImagesSettle(ctx context.Context, found []image.Exit) error {
	p := &dbsqlc.ExitImagesRecordParams{}
	var sandboxes []string
	for _, e := range found {
		sandboxes = append(sandboxes, e.SandboxID)
		if e.ImageID != "" {
			p.Ids, p.SessionIds, p.Generations = append(p.Ids, e.ImageID), append(p.SessionIds, e.SessionID), append(p.Generations, e.Generation)
		}
	}
	return db.inTx(ctx, "record exit images", pgx.TxOptions{}, func(tx pgx.Tx) error {
		if len(p.Ids) > 0 {
			if err := db.q.ExitImagesRecord(ctx, tx, p); err != nil {
				return err
			}
		}
		return db.q.ExitImagesDone(ctx, tx, sandboxes)
	})
}

// ImagesStray condemns images in the provider's list that are unknown here, and returns their
// number. Images that have counted as deleted for longer than age but are still listed are deleted
// again.
func (db *DB) ImagesStray(ctx context.Context, listed []image.Listed, age time.Duration) (int, error) {
	p := &dbsqlc.ImagesStrayParams{}
	for _, l := range listed {
		p.Ids, p.SessionIds = append(p.Ids, l.ID), append(p.SessionIds, l.SessionID)
		p.Generations, p.Exits = append(p.Generations, l.Generation), append(p.Exits, l.Exit)
	}
	stray, err := db.q.ImagesStray(ctx, db.pool, p)
	if err == nil {
		err = db.q.SnapshotsReturned(ctx, db.pool, &dbsqlc.SnapshotsReturnedParams{Ids: p.Ids, Seconds: age.Seconds()})
	}
	return len(stray), fault("compare the provider's images", err)
}

// BaseImageUse records that a sandbox is about to start from a base image, and reports whether it
// may: false if the image is being deleted.
func (db *DB) BaseImageUse(ctx context.Context, name, imageID string) (usable bool, err error) {
	usable, err = db.q.BaseImageUse(ctx, db.pool, &dbsqlc.BaseImageUseParams{ID: imageID, Name: name})
	return usable, fault("note the use of a base image", err)
}

// BaseImagesCondemn returns up to limit base images that are not in use and were last used longer
// than age ago.
func (db *DB) BaseImagesCondemn(ctx context.Context, age time.Duration, limit int) ([]string, error) {
	ids, err := db.q.BaseImagesDue(ctx, db.pool, &dbsqlc.BaseImagesDueParams{Seconds: age.Seconds(), MaxItems: int32(limit)})
	return ids, fault("choose base images to delete", err)
}

// BaseImagesForget records that base images are deleted at the provider.
func (db *DB) BaseImagesForget(ctx context.Context, ids []string) error {
	return fault("forget base images", db.q.BaseImagesForget(ctx, db.pool, ids))
}

// ImageCounts returns the numbers of images in each pending state. An intent older than age counts
// as possibly hiding an image.
func (db *DB) ImageCounts(ctx context.Context, age time.Duration) (image.Counts, error) {
	c, err := db.q.ImageCounts(ctx, db.pool, age.Seconds())
	return image.Counts{Unneeded: c.Unneeded, Failing: c.Failing, Exits: c.Exits, Hidden: c.Hidden}, fault("count images", err)
}
