package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/fork"
	"github.com/overwinter-dev/overwinter/internal/postgres/dbsqlc"
	"github.com/overwinter-dev/overwinter/internal/purge"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// purgeChunk bounds the rows that one statement deletes. Each statement is a separate transaction,
// so that no lock or snapshot is held for the whole purge of a large session.
const purgeChunk = 1000

// The tables with rows of a session, in the order in which they are emptied: referring tables
// first. The events precede them, and the row of the session follows them. The first group is
// erased as soon as the session has no sandbox; the second is needed until its images are deleted.
// The session's row stays while a snapshot is not deleted at the provider, or a row of exit_images
// exists.
var (
	purgeContent = []purgeTable{
		{name: "event_conversations", column: "session_no"},
		{name: "webhook_deliveries", column: "session_no"},
		{name: "lifecycle_events", column: "session_no"},
		{name: "blocks", column: "session_id"},
		{name: "transcripts", column: "session_id"},
		{name: "transcript_positions", column: "session_id"},
		{name: "transcript_totals", column: "session_id"},
		{name: "attachments", column: "session_id"},
		{name: "screenshots", column: "session_id"},
		{name: "session_reports", column: "session_id"},
		{name: "presences", column: "session_id"},
		{name: "workspace_files", column: "session_id"},
		{name: "earlier_files", column: "session_id"},
		{name: "earlier_diffs", column: "session_id"},
		{name: "workspaces", column: "session_id"},
		{name: "questions", column: "session_id"},
		{name: "session_commands", column: "session_id"},
		{name: "runs", column: "session_id"},
		{name: "prompts", column: "session_id"},
		{name: "idempotency_keys", column: "session_id"},
	}
	purgeRecords = []purgeTable{
		{name: "bundles", column: "session_id"},
		{name: "session_forks", column: "session_id"},
		{name: "session_imports", column: "session_id"},
		{name: "snapshots", column: "session_id", where: " AND deleted_at IS NOT NULL"},
		{name: "sandboxes", column: "session_id"},
		{name: "session_transitions", column: "session_id"},
	}
)

type purgeTable struct{ name, column, where string }

// delete returns the statement that deletes a chunk of the rows of a session.
func (t purgeTable) delete() string {
	return fmt.Sprintf("DELETE FROM %[1]s WHERE ctid = ANY(ARRAY(SELECT ctid FROM %[1]s WHERE %[2]s = $1%[3]s LIMIT $2))", t.name, t.column, t.where)
}

// PurgeRequest records that all data of a session must be erased, and returns the session. From
// then on the purge will be carried out, despite failures. It is idempotent. It returns
// session_not_found if the session does not exist or has been erased.
//
// It returns has_forks if the session has forks and the request does not specify their treatment.
// Detached forks get the snapshots that they need. A fork that is being made is either found here,
// or refused.
func (db *DB) PurgeRequest(ctx context.Context, sessionID string, forks fork.Policy) (s session.Session, err error) {
	err = db.inSession(ctx, "request a purge", sessionID, func(tx *sessionTx) error {
		below, err := tx.forksBelow(ctx, forks)
		if err != nil {
			return err
		}
		if len(below) > 0 && forks == fork.Refuse {
			if purging, err := db.purgeGet(ctx, tx, sessionID); err != nil || purging == nil {
				return cmp.Or(err, hasForks(sessionID, below))
			}
		}
		for _, id := range below {
			if forks != fork.Purge {
				break
			}
			if err := tx.q.PurgeInsert(ctx, tx, id); err != nil {
				return err
			}
		}
		if err := tx.q.PurgeInsert(ctx, tx, sessionID); err != nil {
			return err
		}
		if s, err = db.sessionGet(ctx, tx, sessionID); err != nil {
			return err
		}
		s.Purge, err = db.purgeGet(ctx, tx, sessionID)
		return err
	})
	return s, err
}

// forksBelow returns the direct and indirect forks of the session. Until the end of the transaction,
// no fork is added to the session, nor, if they are to be purged too, to its forks. It returns
// errLocked while such a fork is being committed.
func (s *sessionTx) forksBelow(ctx context.Context, forks fork.Policy) (below []string, err error) {
	var locked []string
	for {
		p := &dbsqlc.PurgeTryLockParams{Class: forksLock, SessionIds: append(locked[:len(locked):len(locked)], s.row.ID)}
		if free, err := s.q.PurgeTryLock(ctx, s, p); err != nil || !free {
			return nil, cmp.Or(err, errLocked)
		}
		below, err = s.q.ForksBelow(ctx, s, s.row.ID)
		if err != nil || forks != fork.Purge || slices.Equal(below, locked) {
			return below, err
		}
		locked = below // forks of these may have been committed before they were locked
	}
}

func hasForks(sessionID string, ids []string) error {
	refused := failure.Errorf(failure.HasForks, "session %s has forks (%d); purge with forks=detach, which keeps them, or forks=purge", sessionID, len(ids))
	for _, id := range ids[:min(len(ids), fork.MaxNamed)] {
		refused.Fields = append(refused.Fields, failure.Field{Field: "forks", Message: id})
	}
	return refused
}

// purgeGet returns the purge of a session; nil if none was requested.
func (db *DB) purgeGet(ctx context.Context, tx dbsqlc.DBTX, sessionID string) (*purge.Purge, error) {
	row, err := db.q.PurgeGet(ctx, tx, sessionID)
	if isNoRows(err) {
		return nil, nil
	}
	return &purge.Purge{SessionID: row.SessionID, State: purge.State(row.State), RequestedAt: row.RequestedAt.UTC()}, err
}

// PurgesTake returns up to limit due purges. No other caller gets them during a pause that grows
// with each call, up to a minute.
func (db *DB) PurgesTake(ctx context.Context, limit int) ([]purge.Purge, error) {
	rows, err := db.q.PurgesTake(ctx, db.pool, int32(limit))
	out := make([]purge.Purge, len(rows))
	for i, row := range rows {
		out[i] = purge.Purge{SessionID: row.SessionID, State: purge.State(row.State), RequestedAt: row.RequestedAt.UTC()}
	}
	return out, fault("choose purges", err)
}

// PurgeRenew prevents other callers from taking a purge for a further period.
func (db *DB) PurgeRenew(ctx context.Context, sessionID string, lease time.Duration) error {
	return fault("renew a purge", db.q.PurgeRenew(ctx, db.pool, &dbsqlc.PurgeRenewParams{SessionID: sessionID, PauseSeconds: lease.Seconds()}))
}

// PurgeSet moves a purge to its next state, or schedules its next check, after a pause. It changes
// nothing if another worker has moved the purge further. A purge is erased only after a check: a
// workflow that opens the session later resets it.
func (db *DB) PurgeSet(ctx context.Context, sessionID string, state purge.State, after time.Duration) error {
	return fault("record the state of a purge", db.q.PurgeSet(ctx, db.pool, &dbsqlc.PurgeSetParams{
		SessionID: sessionID, State: string(state), PauseSeconds: after.Seconds(),
	}))
}

// PurgeContent erases a terminated session's events, conversation, prompts, files and transcripts.
// It may be interrupted at any point; the next call continues. Readers of the log get a
// *eventlog.PositionGoneError.
func (db *DB) PurgeContent(ctx context.Context, sessionID string) error {
	const doing = "erase the content of a session"
	if err := db.filesBequeath(ctx, sessionID); err != nil {
		return err
	}
	var no, last int64
	err := db.inSession(ctx, doing, sessionID, func(s *sessionTx) error {
		if !session.State(s.row.Status).Final() {
			return illegal("session %s is not terminated", sessionID)
		}
		no, last, s.grown = s.row.No, s.row.LastSeq, true
		return s.q.SessionScrub(ctx, s, sessionID)
	})
	if err != nil {
		return err
	}
	if err := db.eventsDelete(ctx, no, last); err != nil {
		return fault(doing, err)
	}
	if err := db.q.PurgeArchives(ctx, db.pool, sessionID); err != nil {
		return fault(doing, err)
	}
	return fault(doing, db.purgeRows(ctx, purgeContent, sessionID, no))
}

// eventsDelete deletes events through a position, in chunks.
func (db *DB) eventsDelete(ctx context.Context, sessionNo, through int64) error {
	for {
		n, err := db.q.EventsDelete(ctx, db.pool, &dbsqlc.EventsDeleteParams{SessionNo: sessionNo, Through: through, MaxItems: purgeChunk})
		if err != nil || n < purgeChunk {
			return err
		}
	}
}

func (db *DB) purgeRows(ctx context.Context, tables []purgeTable, sessionID string, no int64) error {
	for _, t := range tables {
		key := any(sessionID)
		if t.column == "session_no" {
			key = no
		}
		for {
			tag, err := db.pool.Exec(ctx, t.delete(), key, purgeChunk)
			if err != nil {
				return fmt.Errorf("%s: %w", t.name, err)
			}
			if tag.RowsAffected() < purgeChunk {
				break
			}
		}
	}
	return nil
}

// ImageIntentsOf returns the ids of the recorded intents of a session's images.
func (db *DB) ImageIntentsOf(ctx context.Context, sessionID string) ([]string, error) {
	ids, err := db.q.ImageIntentsOf(ctx, db.pool, sessionID)
	return ids, fault("find the intents of a session's images", err)
}

// PurgeImages marks all images of a session for deletion, and returns how many may remain at the
// provider.
func (db *DB) PurgeImages(ctx context.Context, sessionID string) (int64, error) {
	const doing = "erase the images of a session"
	if err := db.q.BundlesUnpin(ctx, db.pool, sessionID); err != nil { // a pin protects only from retention
		return 0, fault(doing, err)
	}
	if err := db.q.SnapshotsHandOver(ctx, db.pool, sessionID); err != nil {
		return 0, fault(doing, err)
	}
	if err := db.q.SnapshotsPurge(ctx, db.pool, sessionID); err != nil {
		return 0, fault(doing, err)
	}
	left, err := db.q.ImagesLeft(ctx, db.pool, sessionID)
	return left, fault(doing, err)
}

// PurgeSession erases the rest of a terminated session, its row last. It refuses while images may
// remain. It returns nil if the session has already been erased.
func (db *DB) PurgeSession(ctx context.Context, sessionID string) error {
	const doing = "erase a session"
	no, err := db.q.SessionNo(ctx, db.pool, sessionID)
	if isNoRows(err) {
		return nil
	}
	if err != nil {
		return fault(doing, err)
	}
	left, err := db.PurgeImages(ctx, sessionID)
	if err != nil {
		return err
	}
	if left > 0 {
		return illegal("session %s may have %d images left", sessionID, left)
	}
	if err := db.q.SessionHeadClear(ctx, db.pool, sessionID); err != nil {
		return fault(doing, err)
	}
	// Rows added after PurgeContent, such as a new title of the terminated session, or a requested archive.
	if err := db.q.PurgeArchives(ctx, db.pool, sessionID); err != nil {
		return fault(doing, err)
	}
	if err := db.purgeRows(ctx, append(purgeContent[:len(purgeContent):len(purgeContent)], purgeRecords...), sessionID, no); err != nil {
		return fault(doing, err)
	}
	if err := db.eventsDelete(ctx, no, 1<<62); err != nil {
		return fault(doing, err)
	}
	if err := db.ArchivesCollect(ctx); err != nil {
		return err
	}
	n, err := db.q.SessionDelete(ctx, db.pool, sessionID)
	if err == nil && n == 0 {
		return illegal("session %s is not terminated, or has events or images", sessionID)
	}
	return fault(doing, err)
}

// PurgeTerminated requests the purge of sessions that were terminated longer than age ago, up to
// limit open purges. It leaves a session of which a fork is being committed to the next call.
func (db *DB) PurgeTerminated(ctx context.Context, age time.Duration, limit int) (requested int, err error) {
	const doing = "find sessions to purge"
	open, err := db.q.PurgesOpen(ctx, db.pool)
	if err != nil || open >= int64(limit) {
		return 0, fault(doing, err)
	}
	ids, err := db.q.SessionsRetention(ctx, db.pool, &dbsqlc.SessionsRetentionParams{AgeSeconds: age.Seconds(), MaxItems: int32(int64(limit) - open)})
	if err != nil {
		return 0, fault(doing, err)
	}
	for _, id := range ids {
		var free bool
		err := db.inTx(ctx, "request a purge", pgx.TxOptions{}, func(tx pgx.Tx) (err error) {
			free, err = db.q.PurgeTryLock(ctx, tx, &dbsqlc.PurgeTryLockParams{Class: forksLock, SessionIds: []string{id}})
			if err != nil || !free {
				return err
			}
			return db.q.PurgeInsert(ctx, tx, id)
		})
		if err != nil {
			return requested, err
		}
		if free {
			requested++
		}
	}
	return requested, nil
}

// retentionChunk bounds the events of one session that a call deletes.
const retentionChunk = 100_000

// EventsRetain deletes events older than age of sessions that sleep or are terminated. One call
// processes up to limit sessions after a number and returns the number to continue with, 0 after
// the last. The newest event of a session stays. A session that fails does not keep others from
// being processed.
func (db *DB) EventsRetain(ctx context.Context, age time.Duration, after int64, limit int) (next, pruned int64, err error) {
	const doing = "delete old events"
	rows, err := db.q.EventsRetention(ctx, db.pool, &dbsqlc.EventsRetentionParams{AgeSeconds: age.Seconds(), AfterNo: after, MaxItems: int32(limit)})
	if err != nil {
		return after, 0, fault(doing, err)
	}
	var failed error
	for _, row := range rows {
		if row.Due {
			n, err := db.eventsRetain(ctx, row.ID, age)
			if ctx.Err() != nil {
				return after, pruned, errors.Join(failed, err)
			}
			if err == nil {
				pruned += n
			} else if failure.CodeOf(err) != failure.NoSession {
				failed = errors.Join(failed, fmt.Errorf("%s: session %s: %w", doing, row.ID, err))
			}
		}
		after = row.No
	}
	if len(rows) < limit {
		after = 0
	}
	return after, pruned, failed
}

func (db *DB) eventsRetain(ctx context.Context, sessionID string, age time.Duration) (pruned int64, err error) {
	bounds, err := db.q.EventsBounds(ctx, db.pool, sessionID)
	if isNoRows(err) {
		return 0, noSession(sessionID)
	}
	if err != nil {
		return 0, err
	}
	no, err := db.q.SessionNo(ctx, db.pool, sessionID)
	if err != nil {
		return 0, err
	}
	through, err := db.q.EventsBefore(ctx, db.pool, &dbsqlc.EventsBeforeParams{
		AgeSeconds: age.Seconds(), SessionNo: no, FirstSeq: bounds.FirstSeq, MaxItems: retentionChunk,
	})
	if err != nil {
		return 0, err
	}
	// This also deletes events left by an interrupted call.
	through = max(through, bounds.FirstSeq-1)
	return max(0, through-bounds.FirstSeq+1), db.EventsPrune(ctx, sessionID, through)
}
