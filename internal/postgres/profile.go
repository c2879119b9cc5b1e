package postgres

import (
	"context"
	"encoding/json"

	"github.com/jackc/pgx/v5"

	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/postgres/dbsqlc"
	"github.com/overwinter-dev/overwinter/internal/profile"
	"github.com/overwinter-dev/overwinter/internal/run"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// profileCursor is the last profile of a page; profiles are listed newest first.
type profileCursor struct {
	ID string `json:"i"`
}

// ProfileCreate stores a profile as version 1; name_taken if its name is in use.
func (db *DB) ProfileCreate(ctx context.Context, p profile.Profile) (profile.Profile, error) {
	spec, err := json.Marshal(p.Spec)
	if err != nil {
		return profile.Profile{}, fault("store a profile", err)
	}
	err = db.inTx(ctx, "store a profile", pgx.TxOptions{}, func(tx pgx.Tx) error {
		at, err := clock(ctx, db.q, tx)
		if err != nil {
			return err
		}
		if err := db.q.ProfileInsert(ctx, tx, &dbsqlc.ProfileInsertParams{ID: p.ID, Name: p.Name, Description: p.Description, At: at}); err != nil {
			return err
		}
		err = db.q.ProfileVersionInsert(ctx, tx, &dbsqlc.ProfileVersionInsertParams{ProfileID: p.ID, Version: 1, Spec: spec, At: at})
		if err != nil {
			return err
		}
		p, err = profileGet(ctx, db.q, tx, p.ID, 1)
		return err
	})
	return p, err
}

// ProfileUpdate stores the next version of a profile. If version is not 0 it must be the newest
// one: version_conflict if another client was first, name_taken if the new name is in use.
func (db *DB) ProfileUpdate(ctx context.Context, p profile.Profile, version int64) (profile.Profile, error) {
	spec, err := json.Marshal(p.Spec)
	if err != nil {
		return profile.Profile{}, fault("change a profile", err)
	}
	err = db.inTx(ctx, "change a profile", pgx.TxOptions{}, func(tx pgx.Tx) error {
		at, err := clock(ctx, db.q, tx)
		if err != nil {
			return err
		}
		next, err := db.q.ProfileUpdate(ctx, tx, &dbsqlc.ProfileUpdateParams{ID: p.ID, Name: p.Name, Description: p.Description, At: at})
		if isNoRows(err) {
			return noProfile(p.ID)
		}
		if err != nil {
			return err
		}
		if version != 0 && version != next-1 {
			return failure.Errorf(failure.Conflict, "the profile has version %d, not %d: it was changed in the meantime", next-1, version)
		}
		err = db.q.ProfileVersionInsert(ctx, tx, &dbsqlc.ProfileVersionInsertParams{ProfileID: p.ID, Version: next, Spec: spec, At: at})
		if err != nil {
			return err
		}
		p, err = profileGet(ctx, db.q, tx, p.ID, next)
		return err
	})
	return p, err
}

// ProfileGet returns a profile, by id or name, in a version, or in the newest one if version is 0.
// A deleted profile is found only by its id and version. Errors: profile_not_found,
// profile_version_not_found.
func (db *DB) ProfileGet(ctx context.Context, idOrName string, version int64) (profile.Profile, error) {
	const doing = "read a profile"
	id, err := db.profileFind(ctx, idOrName)
	if err != nil {
		return profile.Profile{}, fault(doing, err)
	}
	p, err := profileGet(ctx, db.q, db.pool, id, version)
	return p, fault(doing, err)
}

// noVersion returns the error for a missing version: the profile or only its version may not exist.
func noVersion(ctx context.Context, q *dbsqlc.Queries, tx dbsqlc.DBTX, id string, version int64) error {
	newest, err := q.ProfileNewest(ctx, tx, id)
	switch {
	case isNoRows(err):
		return noProfile(id)
	case err != nil:
		return err
	}
	return failure.Errorf(failure.NoVersion, "profile %s has no version %d; its newest is %d", id, version, newest)
}

// versionCursor is the last version of a page; versions are listed newest first.
type versionCursor struct {
	Version int64 `json:"v"`
}

// ProfileVersions lists the versions of a profile, newest first. A deleted profile is found by its
// id.
func (db *DB) ProfileVersions(ctx context.Context, idOrName string, limit int, cursor string) (items []profile.Version, nextCursor string, err error) {
	const doing = "list the versions of a profile"
	var before versionCursor
	if cursor != "" {
		if err := cursorDecode(cursor, &before); err != nil {
			return nil, "", err
		}
	}
	id, err := db.profileFind(ctx, idOrName)
	if err != nil {
		return nil, "", fault(doing, err)
	}
	limit = pageLimit(limit)
	rows, err := db.q.ProfileVersions(ctx, db.pool, &dbsqlc.ProfileVersionsParams{ProfileID: id, Before: before.Version, MaxItems: int32(limit) + 1})
	if err != nil {
		return nil, "", fault(doing, err)
	}
	if len(rows) == 0 && cursor == "" {
		return nil, "", noProfile(idOrName)
	}
	if len(rows) > limit {
		rows = rows[:limit]
		nextCursor = cursorEncode(versionCursor{Version: rows[limit-1].Version})
	}
	items = make([]profile.Version, len(rows))
	for i, row := range rows {
		items[i] = profile.Version{ProfileID: id, Version: row.Version, CreatedAt: row.CreatedAt.UTC()}
	}
	return items, nextCursor, nil
}

// profileFind returns the id of a profile given by id or name.
func (db *DB) profileFind(ctx context.Context, idOrName string) (string, error) {
	if session.ValidID(session.ProfilePrefix, idOrName) {
		return idOrName, nil
	}
	id, err := db.q.ProfileFind(ctx, db.pool, idOrName)
	if isNoRows(err) {
		return "", noProfile(idOrName)
	}
	return id, err
}

// ProfileList lists the newest versions of profiles that are not deleted, newest profile first.
func (db *DB) ProfileList(ctx context.Context, limit int, cursor string) (items []profile.Profile, nextCursor string, err error) {
	const doing = "list profiles"
	var from profileCursor
	if cursor != "" {
		if err := cursorDecode(cursor, &from); err != nil {
			return nil, "", err
		}
	}
	limit = pageLimit(limit)
	rows, err := db.q.ProfileList(ctx, db.pool, &dbsqlc.ProfileListParams{BeforeID: from.ID, MaxItems: int32(limit) + 1})
	if err != nil {
		return nil, "", fault(doing, err)
	}
	if len(rows) > limit {
		rows = rows[:limit]
		nextCursor = cursorEncode(profileCursor{ID: rows[limit-1].ID})
	}
	items = make([]profile.Profile, len(rows))
	for i, row := range rows {
		if items[i], err = profileOf(dbsqlc.ProfileGetRow(row)); err != nil {
			return nil, "", fault(doing, err)
		}
	}
	return items, nextCursor, nil
}

// ProfileDelete deletes a profile. Sessions that use one of its versions keep it.
func (db *DB) ProfileDelete(ctx context.Context, id string) error {
	n, err := db.q.ProfileDelete(ctx, db.pool, id)
	if err == nil && n == 0 {
		return noProfile(id)
	}
	return fault("delete a profile", err)
}

func profileGet(ctx context.Context, q *dbsqlc.Queries, tx dbsqlc.DBTX, id string, version int64) (profile.Profile, error) {
	row, err := q.ProfileGet(ctx, tx, &dbsqlc.ProfileGetParams{ID: id, Version: version})
	if isNoRows(err) && version > 0 {
		return profile.Profile{}, noVersion(ctx, q, tx, id, version)
	}
	if isNoRows(err) || err == nil && version == 0 && row.DeletedAt != nil {
		return profile.Profile{}, noProfile(id)
	}
	if err != nil {
		return profile.Profile{}, err
	}
	return profileOf(row)
}

func profileOf(row dbsqlc.ProfileGetRow) (profile.Profile, error) {
	p := profile.Profile{
		ID: row.ID, Name: row.Name, Description: row.Description, Version: row.Version,
		CreatedAt: row.CreatedAt.UTC(), UpdatedAt: row.UpdatedAt.UTC(),
	}
	return p, json.Unmarshal(row.Spec, &p.Spec)
}

// profileInto reads the profile that a session uses.
func (s *sessionTx) profileInto(ctx context.Context, ref string, start *run.Start) error {
	if ref == "" {
		return nil
	}
	id, version, err := profile.ParseRef(ref)
	if err != nil {
		return err
	}
	row, err := s.q.ProfileGet(ctx, s, &dbsqlc.ProfileGetParams{ID: id, Version: version})
	if isNoRows(err) {
		return noProfile(ref)
	}
	if err != nil {
		return err
	}
	p, err := profileOf(row)
	start.ProfileRef, start.Profile = ref, &p.Spec
	return err
}
