package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/overwinter-dev/overwinter/internal/postgres/dbsqlc"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// SnapshotRecord stores that an image exists at the provider, before anything
// depends on it.
func (db *DB) SnapshotRecord(ctx context.Context, sessionID string, generation int64, snapshotID string) error {
	return fault("record a snapshot", db.q.SnapshotInsert(ctx, db.pool, &dbsqlc.SnapshotInsertParams{
		ID: snapshotID, SessionID: sessionID, Generation: generation,
	}))
}

// SnapshotsUnreferenced lists snapshots that no bundle needs: those of bundles
// behind the newest that a restore has proved, of terminated sessions, and those
// older than age that no bundle was made of. What it has returned once it returns
// until it is forgotten, and no bundle can be made of it any more.
func (db *DB) SnapshotsUnreferenced(ctx context.Context, age time.Duration, limit int) (ids []string, err error) {
	err = db.inTx(ctx, "choose snapshots to delete", pgx.TxOptions{}, func(tx pgx.Tx) error {
		at, err := clock(ctx, db.q, tx)
		if err != nil {
			return err
		}
		found, err := db.q.SnapshotsUnneeded(ctx, tx, &dbsqlc.SnapshotsUnneededParams{
			Before: at.Add(-age), MaxItems: int32(limit),
		})
		if err != nil || len(found) == 0 {
			return err
		}
		// A bundle may have been made of one since it was found. Locked, they are
		// looked at again: a statement sees what was committed before it began.
		locked, err := db.q.SnapshotsLock(ctx, tx, found)
		if err != nil {
			return err
		}
		ids, err = db.q.SnapshotsCondemn(ctx, tx, locked)
		return err
	})
	return ids, err
}

// SnapshotForget records that an image is deleted at the provider.
func (db *DB) SnapshotForget(ctx context.Context, snapshotID string) error {
	return fault("forget a snapshot", db.q.SnapshotForget(ctx, db.pool, snapshotID))
}

// BundleCommit stores a bundle and makes it the session's head; the head before
// it becomes its parent. The same id again changes nothing. illegal_state when a
// newer generation has been reserved, or when the snapshot is not recorded or is
// being deleted.
func (db *DB) BundleCommit(ctx context.Context, b session.Bundle) error {
	return db.inSession(ctx, "commit a bundle", b.SessionID, func(s *sessionTx) error {
		have, err := s.q.BundleGet(ctx, s, b.ID)
		switch {
		case err == nil && have.SessionID == b.SessionID:
			return nil
		case err != nil && !isNoRows(err):
			return err
		}
		if b.Generation < s.row.Generation {
			return illegal("generation %d is not the newest, which is %d", b.Generation, s.row.Generation)
		}
		if err := s.snapshotClaim(ctx, b.SnapshotID); err != nil {
			return err
		}
		if b.CreatedAt.IsZero() {
			b.CreatedAt = s.now
		}
		if b.ParentID == "" && s.row.HeadBundleID != nil {
			b.ParentID = *s.row.HeadBundleID
		}
		if b.Manifest.AgentFiles == nil {
			b.Manifest.AgentFiles = []session.ManifestFile{}
		}
		manifest, err := json.Marshal(b.Manifest)
		if err != nil {
			return fmt.Errorf("manifest of bundle %s: %w", b.ID, err)
		}
		err = s.q.BundleInsert(ctx, s, &dbsqlc.BundleInsertParams{
			ID: b.ID, SessionID: b.SessionID, ParentID: b.ParentID, Generation: b.Generation, SnapshotID: b.SnapshotID,
			Manifest: manifest, Verified: b.Verified, Checkpoint: b.Checkpoint, CreatedAt: b.CreatedAt.UTC(),
		})
		if err != nil {
			return err
		}
		return s.q.SessionSetHead(ctx, s, &dbsqlc.SessionSetHeadParams{ID: b.SessionID, HeadBundleID: &b.ID})
	})
}

// snapshotClaim holds the snapshot until the bundle that is made of it is committed.
func (s *sessionTx) snapshotClaim(ctx context.Context, snapshotID string) error {
	if snapshotID == "" {
		return nil
	}
	snapshot, err := s.q.SnapshotLock(ctx, s, snapshotID)
	switch {
	case isNoRows(err):
		return illegal("snapshot %s is not recorded", snapshotID)
	case err != nil:
		return err
	case snapshot.CondemnedAt != nil:
		return illegal("snapshot %s is being deleted", snapshotID)
	}
	return nil
}

// BundleHead returns the bundle to wake from; bundle_not_found when there is none.
func (db *DB) BundleHead(ctx context.Context, sessionID string) (session.Bundle, error) {
	const doing = "read the newest bundle"
	row, err := db.q.BundleGetHead(ctx, db.pool, sessionID)
	if isNoRows(err) {
		return session.Bundle{}, session.Faultf(session.CodeNoBundle, "session %s has no bundle", sessionID)
	}
	if err != nil {
		return session.Bundle{}, fault(doing, err)
	}
	return bundleOf(row)
}

func bundleOf(row dbsqlc.Bundle) (session.Bundle, error) {
	b := session.Bundle{
		ID: row.ID, SessionID: row.SessionID, ParentID: row.ParentID, Generation: row.Generation,
		SnapshotID: row.SnapshotID, Verified: row.Verified, Checkpoint: row.Checkpoint, CreatedAt: row.CreatedAt.UTC(),
	}
	if err := json.Unmarshal(row.Manifest, &b.Manifest); err != nil {
		return session.Bundle{}, fmt.Errorf("manifest of bundle %s: %w", row.ID, err)
	}
	return b, nil
}

// BundlesRestorable lists up to five older bundles of a session whose snapshot is kept and is not
// snapshotID, newest first.
func (db *DB) BundlesRestorable(ctx context.Context, sessionID, snapshotID string) ([]session.Bundle, error) {
	rows, err := db.q.BundlesRestorable(ctx, db.pool, &dbsqlc.BundlesRestorableParams{SessionID: sessionID, ExceptID: snapshotID})
	if err != nil {
		return nil, fault("list older bundles", err)
	}
	out := make([]session.Bundle, len(rows))
	for i, row := range rows {
		if out[i], err = bundleOf(row); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// SnapshotKeep puts off the deletion of a snapshot that could not be restored, for as long as its
// session is not terminated.
func (db *DB) SnapshotKeep(ctx context.Context, snapshotID string, age time.Duration) error {
	return fault("keep a snapshot", db.q.SnapshotKeep(ctx, db.pool, &dbsqlc.SnapshotKeepParams{ID: snapshotID, Seconds: age.Seconds()}))
}

// ImagesKnown lists up to six other images that this installation has made and that should exist at the provider.
func (db *DB) ImagesKnown(ctx context.Context, except string) ([]string, error) {
	ids, err := db.q.ImagesKnown(ctx, db.pool, except)
	return ids, fault("list known images", err)
}

// BundleProve records that a restore has matched the bundle's manifest.
func (db *DB) BundleProve(ctx context.Context, bundleID string) error {
	proved, err := db.q.BundleProve(ctx, db.pool, bundleID)
	if err != nil {
		return fault("prove a bundle", err)
	}
	if proved == 0 {
		return session.Faultf(session.CodeNoBundle, "there is no bundle %s", bundleID)
	}
	return nil
}
