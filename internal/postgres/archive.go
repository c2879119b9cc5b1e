package postgres

import (
	"cmp"
	"context"
	"errors"
	"io"
	"iter"
	"time"

	"github.com/overwinter-dev/overwinter/internal/bundle"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/postgres/dbsqlc"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// archiveLease is how long a worker may work on an archive without renewing its claim.
const archiveLease = time.Minute

// ArchiveRequest requests the archive of a bundle, and returns its current state. It extends the
// archive's lifetime to bundle.ArchiveLife from now. Error: bundle_not_found.
func (db *DB) ArchiveRequest(ctx context.Context, bundleID string) (bundle.Archive, error) {
	a, own, err := db.archiveOwn(ctx, bundleID)
	if err != nil || own {
		return a, err
	}
	err = db.q.ArchiveRequest(ctx, db.pool, &dbsqlc.ArchiveRequestParams{
		ID: session.NewID(bundle.ArchivePrefix), BundleID: bundleID, State: string(bundle.ArchivePending), Seconds: bundle.ArchiveLife.Seconds(),
	})
	if err != nil {
		return bundle.Archive{}, fault("request an archive", err)
	}
	return db.ArchiveShow(ctx, bundleID)
}

// ArchiveShow returns the archive of a bundle; illegal_state if none was requested, or it has
// expired.
func (db *DB) ArchiveShow(ctx context.Context, bundleID string) (bundle.Archive, error) {
	a, own, err := db.archiveOwn(ctx, bundleID)
	if err != nil || own {
		return a, err
	}
	memoryID := a.MemoryID
	row, err := db.q.ArchiveOf(ctx, db.pool, bundleID)
	if isNoRows(err) {
		return bundle.Archive{}, failure.Errorf(failure.IllegalState, "the archive of bundle %s has not been requested, or has expired; request it with POST", bundleID)
	}
	if err != nil {
		return bundle.Archive{}, fault("read an archive", err)
	}
	return bundle.Archive{
		ID: row.ID, BundleID: bundleID, MemoryID: memoryID, State: bundle.ArchiveState(row.State), Reason: row.Reason, Bytes: row.Bytes, ExpiresAt: orZero(row.ExpiresAt),
	}, nil
}

// archiveOwn returns the archive of a bundle that needs no worker because the bundle was imported,
// or has no files.
func (db *DB) archiveOwn(ctx context.Context, bundleID string) (a bundle.Archive, own bool, err error) {
	v, err := db.BundleShow(ctx, bundleID)
	if err != nil {
		return a, false, err
	}
	launch, err := db.q.SessionLaunch(ctx, db.pool, v.SessionID)
	if isNoRows(err) {
		return a, false, noBundle(bundleID) // its session has been purged meanwhile
	}
	if err != nil {
		return a, false, fault("read an archive", err)
	}
	a = bundle.Archive{BundleID: bundleID, MemoryID: cmp.Or(launch.MemoryID, v.SessionID), State: bundle.ArchiveReady}
	switch {
	case v.ArchiveID != "":
		row, err := db.q.ArchiveGet(ctx, db.pool, v.ArchiveID)
		a.ID, a.Bytes = v.ArchiveID, row.Bytes
		return a, true, fault("read an archive", err)
	case !v.HasFiles:
		return a, true, nil
	}
	return a, false, nil
}

// ArchivesTake returns due archives and leases each to the caller.
func (db *DB) ArchivesTake(ctx context.Context, limit int) ([]bundle.ArchiveWork, error) {
	const doing = "take archives"
	rows, err := db.q.ArchivesTake(ctx, db.pool, &dbsqlc.ArchivesTakeParams{MaxItems: int32(limit), Seconds: archiveLease.Seconds()})
	if err != nil {
		return nil, fault(doing, err)
	}
	var out []bundle.ArchiveWork
	for _, row := range rows {
		v, err := db.BundleShow(ctx, row.BundleID)
		if failure.CodeOf(err) == failure.NoBundle {
			continue // the next ArchivesCollect deletes it
		}
		if err != nil {
			return nil, err
		}
		agent, _, _, err := db.SessionNeeds(ctx, v.SessionID, nil)
		if err != nil {
			return nil, err
		}
		out = append(out, bundle.ArchiveWork{ID: row.ID, Attempt: row.Attempt, Tries: row.Tries, Bundle: v.Bundle, Agent: agent})
	}
	return out, nil
}

// ArchiveRenew renews the lease of an attempt on an archive; illegal_state if another attempt has
// it.
func (db *DB) ArchiveRenew(ctx context.Context, id string, attempt int64) error {
	n, err := db.q.ArchiveRenew(ctx, db.pool, &dbsqlc.ArchiveRenewParams{ID: id, Attempt: attempt, Seconds: archiveLease.Seconds()})
	if err == nil && n == 0 {
		return illegal("archive %s is no longer owned by attempt %d", id, attempt)
	}
	return fault("renew an archive", err)
}

// archivePart is the maximum number of bytes of an archive in one row.
const archivePart = 1 << 20

// ArchiveWrite stores the content of an archive for an attempt, and marks the archive as ready once
// all of it is stored; illegal_state if another attempt has taken over. The content of a failed
// attempt is ignored.
func (db *DB) ArchiveWrite(ctx context.Context, id string, attempt int64, content io.Reader) error {
	const doing = "store an archive"
	if err := db.q.ArchivePartsForget(ctx, db.pool, &dbsqlc.ArchivePartsForgetParams{ArchiveID: id, Attempt: attempt}); err != nil {
		return fault(doing, err)
	}
	bytes, err := db.archiveParts(ctx, db.pool, id, attempt, content)
	if err != nil {
		return err
	}
	n, err := db.q.ArchiveReady(ctx, db.pool, &dbsqlc.ArchiveReadyParams{ID: id, Attempt: attempt, Bytes: bytes})
	if err == nil && n == 0 {
		return illegal("archive %s is no longer owned by attempt %d", id, attempt)
	}
	return fault(doing, err)
}

func (db *DB) archiveParts(ctx context.Context, tx dbsqlc.DBTX, id string, attempt int64, content io.Reader) (bytes int64, err error) {
	piece := make([]byte, archivePart)
	for n := int64(0); ; n++ {
		read, err := io.ReadFull(content, piece)
		if errors.Is(err, io.EOF) {
			return bytes, nil
		}
		if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
			return bytes, err
		}
		putErr := db.q.ArchivePartPut(ctx, tx, &dbsqlc.ArchivePartPutParams{ArchiveID: id, Attempt: attempt, N: n, Data: db.pack(id, archiveName, piece[:read])})
		if putErr != nil {
			return bytes, fault("store an archive", putErr)
		}
		bytes += int64(read)
		if err != nil {
			return bytes, nil //nolint:nilerr // end of the content
		}
	}
}

// archiveName is the name under which the parts of archives are sealed.
const archiveName = "archive"

// ArchiveFail records why an attempt failed. Unless the failure is final, the next attempt follows
// after a pause.
func (db *DB) ArchiveFail(ctx context.Context, id string, attempt int64, reason string, final bool) error {
	return fault("record a failed archive", db.q.ArchiveFail(ctx, db.pool, &dbsqlc.ArchiveFailParams{
		ID: id, Attempt: attempt, Reason: text(reason), Final: final, Seconds: 5,
	}))
}

// ArchiveContent reads an archive that is ready, in pieces of at most 1 MiB. Each piece is valid
// until the next one.
func (db *DB) ArchiveContent(ctx context.Context, id string) iter.Seq2[[]byte, error] {
	const doing = "read an archive"
	return func(yield func([]byte, error) bool) {
		row, err := db.q.ArchiveGet(ctx, db.pool, id)
		if isNoRows(err) {
			err = failure.Errorf(failure.NotFound, "there is no archive %s", id)
		}
		if err == nil && row.State != string(bundle.ArchiveReady) {
			err = illegal("archive %s is not ready", id)
		}
		if err != nil {
			yield(nil, fault(doing, err))
			return
		}
		var piece []byte
		for n, left := int64(0), row.Bytes; left > 0; n++ {
			data, err := db.q.ArchivePartGet(ctx, db.pool, &dbsqlc.ArchivePartGetParams{ArchiveID: id, Attempt: row.Attempt, N: n})
			if isNoRows(err) {
				err = failure.Errorf(failure.IllegalState, "archive %s was deleted meanwhile", id)
			}
			if err == nil {
				piece, err = db.unpack(id, archiveName, data, piece[:0])
			}
			if err != nil {
				yield(nil, fault(doing, err))
				return
			}
			left -= int64(len(piece))
			if !yield(piece, nil) {
				return
			}
		}
	}
}

// ArchivesCollect deletes archives that are no longer needed.
func (db *DB) ArchivesCollect(ctx context.Context) error {
	for {
		n, err := db.q.ArchivesCollect(ctx, db.pool)
		if err != nil || n < 100 {
			return fault("delete archives", err)
		}
	}
}

// ArchivesReseal reseals the parts of archives that are not sealed with the current key. It returns
// how many it resealed, and how many it could not open.
func (db *DB) ArchivesReseal(ctx context.Context) (resealed, failed int, err error) {
	const doing = "seal archives again"
	after := dbsqlc.ArchivePartsAfterParams{Attempt: -1, N: -1, MaxItems: resealBatch}
	for {
		rows, err := db.q.ArchivePartsAfter(ctx, db.pool, &after)
		if err != nil {
			return resealed, failed, fault(doing, err)
		}
		for _, row := range rows {
			after.ArchiveID, after.Attempt, after.N = row.ArchiveID, row.Attempt, row.N
			if db.options.Sealer.Current(row.Data) {
				continue
			}
			data, err := db.unpack(row.ArchiveID, archiveName, row.Data, nil)
			if err != nil {
				failed++
				continue
			}
			err = db.q.ArchivePartReseal(ctx, db.pool, &dbsqlc.ArchivePartResealParams{
				ArchiveID: row.ArchiveID, Attempt: row.Attempt, N: row.N, Data: db.pack(row.ArchiveID, archiveName, data),
			})
			if err != nil {
				return resealed, failed, fault(doing, err)
			}
			resealed++
		}
		if len(rows) < resealBatch {
			return resealed, failed, nil
		}
	}
}
