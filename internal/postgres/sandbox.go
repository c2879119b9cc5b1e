package postgres

import (
	"context"
	"time"

	"github.com/overwinter-dev/overwinter/internal/postgres/dbsqlc"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// GenerationReserve records the intent to create the sandbox of a generation, which becomes the
// session's newest and fences all earlier ones. Reserving the newest generation again changes only
// its image. It returns illegal_state if a newer generation is reserved, the sandbox has already
// ended, or the session is terminated, and queue_held if only prompts require the session's first
// sandbox and its queue is held.
func (db *DB) GenerationReserve(ctx context.Context, sessionID string, generation int64, imageID string) error {
	var have dbsqlc.Sandbox
	earlier := db.sandboxReserved(ctx, sessionID, generation, &have)
	return db.inSessionWith(ctx, "reserve a generation", sessionID, earlier, func(s *sessionTx) error {
		if session.State(s.row.Status).Final() {
			return illegal("the session is terminated")
		}
		if generation < s.row.Generation {
			return illegal("generation %d is not the newest, which is %d", generation, s.row.Generation)
		}
		if err := s.startable(ctx, generation); err != nil {
			return err
		}
		if have.EndedAt != nil {
			return illegal("the sandbox of generation %d has ended", generation)
		}
		err := s.q.SandboxReserve(ctx, &s.later, &dbsqlc.SandboxReserveParams{
			SessionID: sessionID, Generation: generation, ImageID: imageID, ReservedAt: s.now,
		})
		if err != nil {
			return err
		}
		return s.q.SessionSetGeneration(ctx, &s.later, &dbsqlc.SessionSetGenerationParams{ID: sessionID, Generation: generation})
	})
}

// SandboxLinkKeySet records the key from which the token of a sandbox's runner is derived, and
// returns the one that was recorded first. It returns illegal_state if the generation was not
// reserved.
func (db *DB) SandboxLinkKeySet(ctx context.Context, sessionID string, generation int64, keyID string) (string, error) {
	const doing = "record the key of a sandbox"
	first, err := db.q.SandboxLinkKeySet(ctx, db.pool, &dbsqlc.SandboxLinkKeySetParams{
		SessionID: sessionID, Generation: generation, LinkKey: &keyID,
	})
	if isNoRows(err) {
		return "", fault(doing, illegal("generation %d was not reserved", generation))
	}
	if err != nil || first == nil {
		return "", fault(doing, err)
	}
	return *first, nil
}

// SandboxLinkKey returns the key from which the token of a sandbox's runner is derived: "" if none
// is recorded, or if a release without key ids created the sandbox.
func (db *DB) SandboxLinkKey(ctx context.Context, sessionID string, generation int64) (string, error) {
	id, err := db.q.SandboxLinkKey(ctx, db.pool, &dbsqlc.SandboxLinkKeyParams{SessionID: sessionID, Generation: generation})
	if isNoRows(err) {
		return "", nil
	}
	return id, fault("read the key of a sandbox", err)
}

// SandboxCloned records that the repository is completely cloned in the sandbox of a generation.
func (db *DB) SandboxCloned(ctx context.Context, sessionID string, generation int64) error {
	return fault("record a clone", db.q.SandboxCloned(ctx, db.pool, &dbsqlc.SandboxClonedParams{SessionID: sessionID, Generation: generation}))
}

// SandboxIsCloned reports whether the repository is completely cloned in the sandbox of a
// generation.
func (db *DB) SandboxIsCloned(ctx context.Context, sessionID string, generation int64) (bool, error) {
	cloned, err := db.q.SandboxIsCloned(ctx, db.pool, &dbsqlc.SandboxIsClonedParams{SessionID: sessionID, Generation: generation})
	if isNoRows(err) {
		return false, nil
	}
	return cloned, fault("look for a clone", err)
}

// SandboxRecord stores the id of the sandbox of a generation and when it expires. It returns
// illegal_state if the generation is not the newest, was not reserved, or its sandbox has ended.
func (db *DB) SandboxRecord(ctx context.Context, sessionID string, generation int64, sandboxID string, status session.SandboxStatus, deadline time.Time) error {
	var have dbsqlc.Sandbox
	earlier := db.sandboxReserved(ctx, sessionID, generation, &have)
	return db.inSessionWith(ctx, "record a sandbox", sessionID, earlier, func(s *sessionTx) error {
		return s.sandboxRecord(ctx, have, session.SandboxRow{Generation: generation, SandboxID: sandboxID, Health: status, Deadline: deadline})
	})
}

// sandboxReserved returns the query of the row of a generation; it stays zero if there is none.
func (db *DB) sandboxReserved(ctx context.Context, sessionID string, generation int64, have *dbsqlc.Sandbox) func(*lookups) error {
	return func(in *lookups) (err error) {
		*have, err = db.q.SandboxGet(ctx, in, &dbsqlc.SandboxGetParams{SessionID: sessionID, Generation: generation})
		if isNoRows(err) {
			return nil
		}
		return err
	}
}

// sandboxRecord stores the sandbox of a generation; have is the row of the generation.
func (s *sessionTx) sandboxRecord(ctx context.Context, have dbsqlc.Sandbox, row session.SandboxRow) error {
	if row.Generation != s.row.Generation {
		return illegal("generation %d is not the newest, which is %d", row.Generation, s.row.Generation)
	}
	if have.SessionID == "" || have.EndedAt != nil {
		return illegal("generation %d was not reserved or its sandbox has ended", row.Generation)
	}
	_, err := s.q.SandboxRecord(ctx, &s.later, &dbsqlc.SandboxRecordParams{ // one row, which the session's lock protects
		SessionID: s.row.ID, Generation: row.Generation, SandboxID: row.SandboxID, Status: string(row.Health),
		Deadline: row.Deadline.UTC(), At: s.now,
	})
	return err
}

// SandboxesSeen stores the current health of sandboxes. It writes nothing for a sandbox that has
// ended or whose status is unchanged.
func (db *DB) SandboxesSeen(ctx context.Context, seen []session.SandboxSeen) error {
	if len(seen) == 0 {
		return nil
	}
	p := &dbsqlc.SandboxesSeenParams{}
	for _, x := range seen {
		p.SessionIds, p.Generations = append(p.SessionIds, x.SessionID), append(p.Generations, x.Generation)
		p.Statuses = append(p.Statuses, string(x.Status))
	}
	return fault("record the health of sandboxes", db.q.SandboxesSeen(ctx, db.pool, p))
}

// SandboxEnd records that the sandbox of a generation has ended, and schedules the search for its
// exit image. The first recorded reason stays. A generation that was never reserved is ignored.
func (db *DB) SandboxEnd(ctx context.Context, sessionID string, generation int64, reason string) error {
	return db.inSession(ctx, "record the end of a sandbox", sessionID, func(s *sessionTx) error {
		return s.sandboxEnd(ctx, generation, reason)
	})
}

func (s *sessionTx) sandboxEnd(ctx context.Context, generation int64, reason string) error {
	return s.q.SandboxEnd(ctx, &s.later, &dbsqlc.SandboxEndParams{
		SessionID: s.row.ID, Generation: generation, Reason: text(reason), At: s.now,
	})
}

// SandboxesOpen lists all sandboxes without a recorded end: of one session, or of all if the id is
// empty.
func (db *DB) SandboxesOpen(ctx context.Context, sessionID string) ([]session.SandboxRow, error) {
	rows, err := db.q.SandboxesOpen(ctx, db.pool, sessionID)
	if err != nil {
		return nil, fault("list sandboxes", err)
	}
	out := make([]session.SandboxRow, len(rows))
	for i, row := range rows {
		out[i] = session.SandboxRow{
			SessionID: row.SessionID, Generation: row.Generation, SandboxID: row.SandboxID,
			ImageID: row.ImageID, Status: session.State(row.Status), Current: row.IsCurrent, WorkspaceChanged: row.WorkspaceChanged, Transition: row.TransitionNo,
			ReservedAt: row.ReservedAt.UTC(), ReadyAt: orZero(row.ReadyAt), Deadline: orZero(row.Deadline),
		}
	}
	return out, nil
}

// SandboxUnsaved returns the newest sandbox, ended or not, in which the session has worked since
// its newest bundle; false if no such sandbox exists.
func (db *DB) SandboxUnsaved(ctx context.Context, sessionID string) (session.UnsavedSandbox, bool, error) {
	var row dbsqlc.SandboxUnsavedRow
	err := db.inOneTrip(ctx, func(in *lookups) (err error) {
		row, err = db.q.SandboxUnsaved(ctx, in, sessionID)
		return err
	})
	if isNoRows(err) {
		return session.UnsavedSandbox{}, false, nil
	}
	if err != nil {
		return session.UnsavedSandbox{}, false, fault("look for unsaved work", err)
	}
	return session.UnsavedSandbox{
		SandboxRow: session.SandboxRow{
			SessionID: row.SessionID, Generation: row.Generation, SandboxID: row.SandboxID,
			Status: session.State(row.Status), Current: row.IsCurrent,
			ReservedAt: row.ReservedAt.UTC(), ReadyAt: orZero(row.ReadyAt), Deadline: orZero(row.Deadline),
		},
		Waited: time.Duration(row.Waited * float64(time.Second)),
	}, true, nil
}

// SandboxesFailed counts the sandboxes of a session that were created from an image and ended
// before their runner first responded.
func (db *DB) SandboxesFailed(ctx context.Context, sessionID, imageID string) (int64, error) {
	n, err := db.q.SandboxesFailed(ctx, db.pool, &dbsqlc.SandboxesFailedParams{SessionID: sessionID, ImageID: imageID})
	return n, fault("count failed sandboxes", err)
}

// SandboxesPage lists open sandboxes after a key, ordered by key.
func (db *DB) SandboxesPage(ctx context.Context, after session.SandboxKey, limit int) ([]session.SandboxRow, error) {
	rows, err := db.q.SandboxesPage(ctx, db.pool, &dbsqlc.SandboxesPageParams{
		AfterSession: after.SessionID, AfterGeneration: after.Generation, MaxItems: int32(limit),
	})
	if err != nil {
		return nil, fault("list sandboxes", err)
	}
	out := make([]session.SandboxRow, len(rows))
	for i, row := range rows {
		out[i] = session.SandboxRow{
			SessionID: row.SessionID, Generation: row.Generation, SandboxID: row.SandboxID,
			Status: session.State(row.Status), Health: session.SandboxStatus(row.Health), Current: row.IsCurrent,
			ReservedAt: row.ReservedAt.UTC(), ReadyAt: orZero(row.ReadyAt), Deadline: orZero(row.Deadline),
		}
	}
	return out, nil
}

// SandboxesAbandoned lists open sandboxes older than age that their session no longer uses because
// it has another generation, sleeps, or is terminated.
func (db *DB) SandboxesAbandoned(ctx context.Context, age time.Duration, after session.SandboxKey, limit int) ([]session.SandboxRow, error) {
	rows, err := db.q.SandboxesAbandoned(ctx, db.pool, &dbsqlc.SandboxesAbandonedParams{
		AfterSession: after.SessionID, AfterGeneration: after.Generation, Seconds: age.Seconds(), MaxItems: int32(limit),
	})
	if err != nil {
		return nil, fault("list abandoned sandboxes", err)
	}
	out := make([]session.SandboxRow, len(rows))
	for i, row := range rows {
		out[i] = session.SandboxRow{
			SessionID: row.SessionID, Generation: row.Generation, SandboxID: row.SandboxID,
			Status: session.State(row.Status), Current: row.IsCurrent,
			ReservedAt: row.ReservedAt.UTC(), ReadyAt: orZero(row.ReadyAt), Deadline: orZero(row.Deadline),
		}
	}
	return out, nil
}

// SandboxesUnowned returns the indexes of the keys that belong to no open sandbox.
func (db *DB) SandboxesUnowned(ctx context.Context, keys []session.SandboxKey) ([]int, error) {
	p := &dbsqlc.SandboxesUnownedParams{}
	for _, k := range keys {
		p.SessionIds, p.Generations = append(p.SessionIds, k.SessionID), append(p.Generations, k.Generation)
	}
	at, err := db.q.SandboxesUnowned(ctx, db.pool, p)
	if err != nil {
		return nil, fault("look for the owners of sandboxes", err)
	}
	out := make([]int, len(at))
	for i, n := range at {
		out[i] = int(n) - 1
	}
	return out, nil
}
