package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/postgres/dbsqlc"
	"github.com/overwinter-dev/overwinter/internal/workspacefile"
)

// BundleFileList is FileList for the files of a bundle. Errors: bundle_not_found, and
// file_not_saved if its files are not stored.
func (db *DB) BundleFileList(ctx context.Context, bundleID, prefix string, limit int, cursor string) (items []workspacefile.Info, next string, err error) {
	var from fileCursor
	if cursor != "" {
		if err := cursorDecode(cursor, &from); err != nil {
			return nil, "", err
		}
	}
	limit = pageLimit(limit)
	err = db.atBundle(ctx, bundleID, func(tx pgx.Tx, at dbsqlc.BundleFilesAtRow) error {
		rows, err := db.q.FilesListAt(ctx, tx, &dbsqlc.FilesListAtParams{
			SessionID: at.SessionID, Epoch: at.Epoch, Prefix: prefix, After: from.Path, MaxItems: int32(limit) + 1,
		})
		if len(rows) > limit {
			rows = rows[:limit]
			next = cursorEncode(fileCursor{Path: rows[limit-1].Path})
		}
		for _, row := range rows {
			items = append(items, fileInfo(dbsqlc.FilesListRow(row)))
		}
		return err
	})
	return items, next, err
}

// BundleFileGet is FileGet for a file of a bundle.
func (db *DB) BundleFileGet(ctx context.Context, bundleID, name string) (f workspacefile.Content, err error) {
	err = db.atBundle(ctx, bundleID, func(tx pgx.Tx, at dbsqlc.BundleFilesAtRow) error {
		row, err := db.q.FileGetAt(ctx, tx, &dbsqlc.FileGetAtParams{SessionID: at.SessionID, Epoch: at.Epoch, Path: name})
		if isNoRows(err) {
			return failure.Errorf(failure.NoFile, "there is no such file in bundle %s", bundleID)
		}
		if err != nil {
			return err
		}
		f, err = db.fileContent(fileInfo(dbsqlc.FilesListRow{
			Path: row.Path, Size: row.Size, Sha256: row.Sha256, Mode: row.Mode, ModifiedAt: row.ModifiedAt, Unsaved: row.Unsaved,
		}), row.Content)
		return err
	})
	return f, err
}

// BundleDiffGet is DiffGet for the diff of a bundle.
func (db *DB) BundleDiffGet(ctx context.Context, bundleID string) (d *workspacefile.Diff, err error) {
	err = db.atBundle(ctx, bundleID, func(tx pgx.Tx, at dbsqlc.BundleFilesAtRow) error {
		row, err := db.q.DiffGetAt(ctx, tx, &dbsqlc.DiffGetAtParams{SessionID: at.SessionID, Epoch: at.Epoch})
		if isNoRows(err) {
			return nil
		}
		if err == nil {
			d, err = db.diffOf(at.SessionID, row.Diff, row.Patch)
		}
		return err
	})
	return d, err
}

// atBundle calls read in a read-only transaction if the files of the bundle are stored, else
// returns why they are not.
func (db *DB) atBundle(ctx context.Context, bundleID string, read func(tx pgx.Tx, at dbsqlc.BundleFilesAtRow) error) error {
	return db.inTx(ctx, "read the files of a bundle", pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		at, err := db.q.BundleFilesAt(ctx, tx, bundleID)
		switch {
		case err == nil && at.Kept:
			return read(tx, at)
		case err != nil && !isNoRows(err):
			return err
		}
		b, err := db.q.BundleGet(ctx, tx, bundleID)
		switch {
		case isNoRows(err):
			return noBundle(bundleID)
		case err != nil:
			return err
		case b.ArchiveID != "":
			return failure.Errorf(failure.NotSaved, "bundle %s was imported; its files are in its archive until the session has worked with them", bundleID)
		case b.SnapshotID == "":
			return failure.Errorf(failure.NotSaved, "bundle %s has no files: it was saved without a snapshot", bundleID)
		}
		return failure.Errorf(failure.NotSaved, "the files of bundle %s are not stored outside its snapshot; fork the session at it to read them", bundleID)
	})
}

// filesBequeath moves files that bundles of forks share with a session that is being purged to one
// of those forks. A list that the session no longer stores completely is not passed on.
func (db *DB) filesBequeath(ctx context.Context, sessionID string) error {
	return db.inTx(ctx, "keep the files of forks", pgx.TxOptions{}, func(tx pgx.Tx) error {
		heirs, err := db.q.FilesHeirs(ctx, tx, sessionID)
		if err != nil {
			return err
		}
		for _, h := range heirs {
			if !h.Kept {
				err := db.q.BundlesDisinherit(ctx, tx, &dbsqlc.BundlesDisinheritParams{BundleID: h.BundleID, SessionID: sessionID})
				if err != nil {
					return err
				}
				continue
			}
			err := db.q.FilesInherit(ctx, tx, &dbsqlc.FilesInheritParams{HeirSessionID: h.HeirSessionID, SessionID: sessionID, Epoch: h.Epoch})
			if err != nil {
				return err
			}
			err = db.q.DiffInherit(ctx, tx, &dbsqlc.DiffInheritParams{HeirSessionID: h.HeirSessionID, SessionID: sessionID, Epoch: h.Epoch})
			if err != nil {
				return err
			}
			err = db.q.BundlesInherit(ctx, tx, &dbsqlc.BundlesInheritParams{
				HeirSessionID: h.HeirSessionID, HeirID: h.HeirID, BundleID: h.BundleID, SessionID: sessionID,
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// filesRevert sets the file list and the diff of a session to those of a bundle, which its next
// sandbox is restored from. They stay if the bundle's are not stored; the next turn then reports
// the files.
func (s *sessionTx) filesRevert(ctx context.Context, bundleID string) error {
	at, err := s.q.BundleFilesAt(ctx, s, bundleID)
	if isNoRows(err) || err == nil && !at.Kept {
		return nil
	}
	if err != nil {
		return err
	}
	err = s.q.FilesRevertDeleted(ctx, s, &dbsqlc.FilesRevertDeletedParams{SessionID: s.row.ID, FromID: at.SessionID, Epoch: at.Epoch, At: s.now})
	if err != nil {
		return err
	}
	if err := s.q.FilesRevert(ctx, s, &dbsqlc.FilesRevertParams{SessionID: s.row.ID, FromID: at.SessionID, Epoch: at.Epoch}); err != nil {
		return err
	}
	return s.q.WorkspaceRevert(ctx, s, &dbsqlc.WorkspaceRevertParams{SessionID: s.row.ID, FromID: at.SessionID, Epoch: at.Epoch})
}
