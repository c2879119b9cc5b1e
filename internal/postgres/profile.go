package postgres

import (
	"context"
	"encoding/json"

	"github.com/jackc/pgx/v5"

	"github.com/overwinter-dev/overwinter/internal/postgres/dbsqlc"
	"github.com/overwinter-dev/overwinter/internal/profile"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// profileCursor is the last profile of a page of the newest first.
type profileCursor struct {
	ID string `json:"i"`
}

// ProfileCreate stores a profile as version 1; illegal_state where its name is taken.
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

// ProfileUpdate stores the next version of a profile. If version is not 0 it must be the newest so
// far: illegal_state if another client was first, or if the new name is taken.
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
			return illegal("the profile has version %d, not %d: it was changed in the meantime", next-1, version)
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

// ProfileGet returns a profile by its id, or its name, in a version, or with 0 in the newest. One
// that is deleted is found by its id and version alone.
func (db *DB) ProfileGet(ctx context.Context, idOrName string, version int64) (profile.Profile, error) {
	const doing = "read a profile"
	id := idOrName
	if !session.ValidID(session.ProfilePrefix, idOrName) {
		var err error
		if id, err = db.q.ProfileFind(ctx, db.pool, idOrName); isNoRows(err) {
			return profile.Profile{}, noProfile(idOrName)
		} else if err != nil {
			return profile.Profile{}, fault(doing, err)
		}
	}
	p, err := profileGet(ctx, db.q, db.pool, id, version)
	return p, fault(doing, err)
}

// ProfileList lists the profiles that are not deleted in their newest versions, newest profile first.
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

// ProfileDelete deletes a profile. Sessions that have one of its versions keep it.
func (db *DB) ProfileDelete(ctx context.Context, id string) error {
	n, err := db.q.ProfileDelete(ctx, db.pool, id)
	if err == nil && n == 0 {
		return noProfile(id)
	}
	return fault("delete a profile", err)
}

func profileGet(ctx context.Context, q *dbsqlc.Queries, tx dbsqlc.DBTX, id string, version int64) (profile.Profile, error) {
	row, err := q.ProfileGet(ctx, tx, &dbsqlc.ProfileGetParams{ID: id, Version: version})
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

// profileInto reads the profile that a session has.
func (s *sessionTx) profileInto(ctx context.Context, ref string, start *session.RunStart) error {
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
