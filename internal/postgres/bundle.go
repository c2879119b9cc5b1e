package postgres

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/overwinter-dev/overwinter/internal/bundle"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/manifest"
	"github.com/overwinter-dev/overwinter/internal/postgres/dbsqlc"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// BundleCommit stores a bundle and makes it the session's head; the previous head becomes its
// parent. It is idempotent for a bundle's id. It returns illegal_state if a newer generation has
// been reserved, or if the snapshot is not recorded or is being deleted.
func (db *DB) BundleCommit(ctx context.Context, b bundle.Bundle) error {
	var have dbsqlc.Bundle
	var snapshot dbsqlc.Snapshot // locked, which protects it from deletion; zero if it is not recorded
	earlier := func(in *lookups) error {
		var haveErr, snapshotErr error
		if have, haveErr = db.q.BundleGet(ctx, in, b.ID); isNoRows(haveErr) {
			haveErr = nil
		}
		if b.SnapshotID == "" {
			return haveErr
		}
		if snapshot, snapshotErr = db.q.SnapshotLock(ctx, in, b.SnapshotID); isNoRows(snapshotErr) {
			snapshotErr = nil
		}
		return cmp.Or(haveErr, snapshotErr)
	}
	return db.inSessionWith(ctx, "commit a bundle", b.SessionID, earlier, func(s *sessionTx) error {
		if have.SessionID == b.SessionID {
			return nil
		}
		if b.Generation < s.row.Generation {
			return illegal("generation %d is not the newest, which is %d", b.Generation, s.row.Generation)
		}
		if b.SnapshotID != "" {
			if err := bundleable(b.SnapshotID, snapshot); err != nil {
				return err
			}
			if err := s.q.SnapshotBundled(ctx, &s.later, b.SnapshotID); err != nil {
				return err
			}
		}
		if b.CreatedAt.IsZero() {
			b.CreatedAt = s.now
		}
		if b.ParentID == "" && s.row.HeadBundleID != nil {
			b.ParentID = *s.row.HeadBundleID
		}
		if b.Manifest.AgentFiles == nil {
			b.Manifest.AgentFiles = []manifest.File{}
		}
		list, err := json.Marshal(b.Manifest)
		if err != nil {
			return fmt.Errorf("manifest of bundle %s: %w", b.ID, err)
		}
		err = s.q.BundleInsert(ctx, &s.later, &dbsqlc.BundleInsertParams{
			ID: b.ID, SessionID: b.SessionID, ParentID: b.ParentID, Generation: b.Generation, SnapshotID: b.SnapshotID,
			Manifest: list, Verified: b.Verified, Checkpoint: b.Checkpoint, CreatedAt: b.CreatedAt.UTC(),
			LastSeq: cmp.Or(min(b.Manifest.LastSeq, s.row.LastSeq), s.row.LastSeq), Reverted: session.ReasonReverted,
		})
		if err != nil {
			return err
		}
		if err := s.q.SessionSetHead(ctx, &s.later, &dbsqlc.SessionSetHeadParams{ID: b.SessionID, HeadBundleID: &b.ID}); err != nil {
			return err
		}
		if err := s.epochBegin(ctx); err != nil {
			return err
		}
		return s.q.SnapshotsRelease(ctx, &s.later, b.SessionID)
	})
}

// epochBegin makes files that are written from now on leave the files of the newest bundle in
// place.
func (s *sessionTx) epochBegin(ctx context.Context) error {
	if err := s.q.EpochBegin(ctx, &s.later, &dbsqlc.EpochBeginParams{SessionID: s.row.ID, At: s.now}); err != nil {
		return err
	}
	if err := s.q.EarlierFilesForget(ctx, &s.later, s.row.ID); err != nil {
		return err
	}
	return s.q.EarlierDiffsForget(ctx, &s.later, s.row.ID)
}

// snapshotClaim protects the snapshot from deletion until the bundle that refers to it is
// committed.
func (s *sessionTx) snapshotClaim(ctx context.Context, snapshotID string) error {
	if snapshotID == "" {
		return nil
	}
	locked, err := s.q.SnapshotLock(ctx, s, snapshotID)
	if err != nil && !isNoRows(err) {
		return err
	}
	if err := bundleable(snapshotID, locked); err != nil {
		return err
	}
	return s.q.SnapshotBundled(ctx, s, snapshotID)
}

// bundleable checks that a bundle may refer to a snapshot; locked is its row, zero if there is none.
func bundleable(snapshotID string, locked dbsqlc.Snapshot) error {
	switch {
	case locked.ID == "":
		return illegal("snapshot %s is not recorded", snapshotID)
	case locked.CondemnedAt != nil:
		return illegal("snapshot %s is being deleted", snapshotID)
	}
	return nil
}

// BundleHead returns the bundle to restore from; bundle_not_found if there is none.
func (db *DB) BundleHead(ctx context.Context, sessionID string) (bundle.Bundle, error) {
	const doing = "read the newest bundle"
	row, err := db.q.BundleGetHead(ctx, db.pool, sessionID)
	if isNoRows(err) {
		return bundle.Bundle{}, failure.Errorf(failure.NoBundle, "session %s has no bundle", sessionID)
	}
	if err != nil {
		return bundle.Bundle{}, fault(doing, err)
	}
	return bundleOf(row)
}

func bundleOf(row dbsqlc.Bundle) (bundle.Bundle, error) {
	b := bundle.Bundle{
		ID: row.ID, SessionID: row.SessionID, ParentID: row.ParentID, Generation: row.Generation,
		SnapshotID: row.SnapshotID, ArchiveID: row.ArchiveID, Verified: row.Verified, Checkpoint: row.Checkpoint, CreatedAt: row.CreatedAt.UTC(),
	}
	if err := json.Unmarshal(row.Manifest, &b.Manifest); err != nil {
		return bundle.Bundle{}, fmt.Errorf("manifest of bundle %s: %w", row.ID, err)
	}
	return b, nil
}

// BundlesRestorable lists up to five older bundles of a session whose snapshot is kept and differs
// from snapshotID, newest first.
func (db *DB) BundlesRestorable(ctx context.Context, sessionID, snapshotID string) ([]bundle.Bundle, error) {
	rows, err := db.q.BundlesRestorable(ctx, db.pool, &dbsqlc.BundlesRestorableParams{SessionID: sessionID, ExceptID: snapshotID})
	if err != nil {
		return nil, fault("list older bundles", err)
	}
	out := make([]bundle.Bundle, len(rows))
	for i, row := range rows {
		if out[i], err = bundleOf(row); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// SnapshotKeep postpones the deletion of a snapshot that could not be restored, until its session
// is terminated.
func (db *DB) SnapshotKeep(ctx context.Context, snapshotID string, age time.Duration) error {
	return fault("keep a snapshot", db.q.SnapshotKeep(ctx, db.pool, &dbsqlc.SnapshotKeepParams{ID: snapshotID, Seconds: age.Seconds()}))
}

// ImagesKnown lists up to six other images that this installation made and that should exist at the
// provider.
func (db *DB) ImagesKnown(ctx context.Context, except string) ([]string, error) {
	ids, err := db.q.ImagesKnown(ctx, db.pool, except)
	return ids, fault("list known images", err)
}

// BundleProve records that a restore matched the bundle's manifest. Older snapshots are then no
// longer needed.
func (db *DB) BundleProve(ctx context.Context, bundleID string) error {
	var sessionID string
	prove := func(in *lookups) (err error) {
		if sessionID, err = db.q.BundleProve(ctx, in, bundleID); isNoRows(err) {
			return failure.Errorf(failure.NoBundle, "there is no bundle %s", bundleID)
		}
		return err
	}
	return db.inTwoTrips(ctx, "prove a bundle", []string{"begin"}, prove, func(out *pipeline) error {
		return db.q.SnapshotsRelease(ctx, out, sessionID)
	})
}
