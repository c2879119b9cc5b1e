package postgres

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/overwinter-dev/overwinter/internal/bundle"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/fork"
	"github.com/overwinter-dev/overwinter/internal/postgres/dbsqlc"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// SessionFork stores a hibernated session with a bundle of another session, and its first prompt,
// if any. The fork inherits the parent's workspace, options, metadata and, unless another one is
// named, its agent. It gets a copy of the conversation up to the bundle: the blocks, and an event
// for each. The parent's row is not locked. Idempotency works as in SessionCreate. Errors:
// session_not_found, bundle_not_found, prompt_not_found, no_bundle_there if there is no bundle at
// that point, illegal_state if its files are deleted or the parent is being purged.
func (db *DB) SessionFork(ctx context.Context, f fork.Fork, first *session.Prompt, idem session.Idempotency) (stored session.Session, created bool, err error) {
	ctx, cancel := db.bulk(ctx)
	defer cancel()
	err = db.inTx(ctx, "fork a session", pgx.TxOptions{}, func(tx pgx.Tx) error {
		at, err := clock(ctx, db.q, tx)
		if err != nil {
			return err
		}
		if idem.Key != "" {
			earlier, err := db.keyTake(ctx, tx, idem, f.ID, at)
			if err != nil {
				return err
			}
			if earlier != "" {
				stored, err = db.sessionIn(ctx, tx, earlier)
				return err
			}
		}
		if idem.Refusal != nil {
			return idem.Refusal
		}
		parent, err := db.sessionGetBare(ctx, tx, f.SessionID)
		if err != nil {
			return err
		}
		bundle, err := db.forkPoint(ctx, tx, f)
		if err != nil {
			return err
		}
		// From here on neither a purge nor a policy deletes the snapshot: the fork's bundle needs
		// it.
		if err := (&sessionTx{Conn: tx.Conn(), q: db.q}).snapshotClaim(ctx, bundle.SnapshotID); err != nil {
			return err
		}
		if bundle.ArchiveID != "" {
			if _, err := db.q.ArchiveLock(ctx, tx, bundle.ArchiveID); isNoRows(err) {
				return illegal("the files of bundle %s are deleted", bundle.ID)
			} else if err != nil {
				return err
			}
		}
		if f, err = db.forkInsert(ctx, tx, f, parent, at); err != nil {
			return err
		}
		if err := db.forkInto(ctx, tx, f, bundle); err != nil {
			return err
		}
		if first != nil {
			if err := db.promptFirst(ctx, tx, f.ID, *first, at); err != nil {
				return err
			}
		}
		created = true
		if stored, err = db.sessionIn(ctx, tx, f.ID); err != nil {
			return err
		}
		return db.forkConfirm(ctx, tx, f.SessionID)
	})
	if err == nil {
		one := []session.Session{stored}
		err = fault("read a session", db.inOneTrip(ctx, func(in *lookups) error { return db.headsInto(ctx, in, one) }))
		stored = one[0]
	}
	if err != nil {
		return session.Session{}, false, err
	}
	return stored, created, nil
}

// forkInsert stores the row of a fork, and returns the fork with the fields that it inherits.
func (db *DB) forkInsert(ctx context.Context, tx pgx.Tx, f fork.Fork, parent session.Session, at time.Time) (fork.Fork, error) {
	f.Title, f.Profile, f.Agent = cmp.Or(f.Title, parent.Title), cmp.Or(f.Profile, parent.Profile), cmp.Or(f.Agent, parent.Agent)
	inserted, err := db.q.ForkSessionInsert(ctx, tx, &dbsqlc.ForkSessionInsertParams{
		ID: f.ID, ParentID: f.SessionID, Agent: f.Agent, Profile: f.Profile, Title: f.Title, TitleGiven: f.Title != "", At: at,
	})
	if err != nil {
		return f, err
	}
	if inserted == 0 {
		return f, beingErased(f.SessionID)
	}
	return f, nil
}

// forksLock is the class of the advisory locks that order the commits of forks and the requests of
// purges.
const forksLock = 0x666f726b

// forkConfirm refuses a fork if the purge of its parent was requested while it was being made. A
// purge request does not see a fork before its commit: either the request is made after the commit,
// or the fork finds it here. It is the last step, so that requests wait only for the commit.
func (db *DB) forkConfirm(ctx context.Context, tx pgx.Tx, parentID string) error {
	if err := db.q.ForkCommitLock(ctx, tx, &dbsqlc.ForkCommitLockParams{Class: forksLock, ParentID: parentID}); err != nil {
		return err
	}
	// A new statement: it sees all commits before it began.
	purging, err := db.purgeGet(ctx, tx, parentID)
	if err == nil && purging != nil {
		err = beingErased(parentID)
	}
	return err
}

func beingErased(sessionID string) error { return illegal("session %s is being erased", sessionID) }

// forkPoint finds the bundle to fork from, or to revert to.
func (db *DB) forkPoint(ctx context.Context, tx dbsqlc.DBTX, f fork.Fork) (dbsqlc.BundleView, error) {
	id := f.BundleID
	if id == "" {
		var err error
		if id, err = db.bundleAt(ctx, tx, f); err != nil {
			return dbsqlc.BundleView{}, err
		}
	}
	v, err := db.q.BundleViewGet(ctx, tx, id)
	switch {
	case isNoRows(err), err == nil && v.SessionID != f.SessionID:
		return v, failure.Errorf(failure.NoBundle, "session %s has no bundle %s", f.SessionID, id)
	case err != nil:
		return v, err
	case !v.HasFiles:
		return v, illegal("the files of bundle %s are deleted", id)
	case v.Outcome == string(bundle.RunOpen):
		return v, illegal("bundle %s was made in the middle of a turn, while a question was open", id)
	}
	return v, nil
}

// bundleAt returns the bundle after a prompt, or before it.
func (db *DB) bundleAt(ctx context.Context, tx dbsqlc.DBTX, f fork.Fork) (string, error) {
	began, err := db.q.PromptBegan(ctx, tx, &dbsqlc.PromptBeganParams{SessionID: f.SessionID, PromptID: f.PromptID})
	if err != nil {
		return "", err
	}
	if began == 0 {
		_, err := db.q.PromptGet(ctx, tx, &dbsqlc.PromptGetParams{SessionID: f.SessionID, ID: f.PromptID})
		if isNoRows(err) {
			return "", noPrompt(f.PromptID)
		}
		if err != nil {
			return "", err
		}
		return "", illegal("the prompt has not been run")
	}
	var id string
	if f.Before {
		id, err = db.q.BundleBeforePrompt(ctx, tx, &dbsqlc.BundleBeforePromptParams{SessionID: f.SessionID, BeganSeq: began})
	} else {
		id, err = db.q.BundleAfterPrompt(ctx, tx, &dbsqlc.BundleAfterPromptParams{SessionID: f.SessionID, PromptID: f.PromptID})
	}
	if !isNoRows(err) {
		return id, err
	}
	near, err := db.q.BundlesNear(ctx, tx, &dbsqlc.BundlesNearParams{SessionID: f.SessionID, Seq: began})
	if err != nil {
		return "", err
	}
	point := "after"
	if f.Before {
		point = "before"
	}
	none := failure.Errorf(failure.NoBundleThere, "no bundle was saved right %s prompt %s", point, f.PromptID)
	for _, n := range []struct{ field, id string }{{"before", near.Before}, {"after", near.After}} {
		if n.id != "" {
			none.Message += fmt.Sprintf("; the nearest %s is %s", n.field, n.id)
			none.Fields = append(none.Fields, failure.Field{Field: "nearest." + n.field, Message: n.id})
		}
	}
	return "", none
}

// forkInto gives a fork its base bundle, and a copy of the conversation up to it.
func (db *DB) forkInto(ctx context.Context, tx pgx.Tx, f fork.Fork, bundle dbsqlc.BundleView) error {
	row, err := db.q.SessionLock(ctx, tx, f.ID)
	if err != nil {
		return err
	}
	blocks, err := db.q.ForkBlocks(ctx, tx, &dbsqlc.ForkBlocksParams{SessionID: f.ID, ParentID: f.SessionID, ThroughSeq: bundle.LastSeq})
	if err != nil {
		return err
	}
	at, err := clock(ctx, db.q, tx)
	if err != nil {
		return err
	}
	id := session.NewID(session.BundlePrefix)
	for _, step := range []func() error{
		func() error {
			return db.q.ForkConversations(ctx, tx, &dbsqlc.ForkConversationsParams{SessionNo: row.No, SessionID: f.ID})
		},
		func() error {
			return db.q.ForkEvents(ctx, tx, &dbsqlc.ForkEventsParams{SessionNo: row.No, SessionID: f.ID, At: at})
		},
		func() error {
			return db.q.SessionAdvance(ctx, tx, &dbsqlc.SessionAdvanceParams{ID: f.ID, LastSeq: blocks})
		},
		func() error {
			return db.q.ForkAttachments(ctx, tx, &dbsqlc.ForkAttachmentsParams{SessionID: f.ID, ParentID: f.SessionID, Before: bundle.CreatedAt})
		},
		func() error {
			return db.q.ForkBundle(ctx, tx, &dbsqlc.ForkBundleParams{ID: id, SessionID: f.ID, BundleID: bundle.ID, LastSeq: blocks, At: at})
		},
		func() error {
			return db.q.SessionSetHead(ctx, tx, &dbsqlc.SessionSetHeadParams{ID: f.ID, HeadBundleID: &id})
		},
		func() error {
			return db.q.ForkInsert(ctx, tx, &dbsqlc.ForkInsertParams{
				SessionID: f.ID, ParentID: f.SessionID, BundleID: bundle.ID, PromptID: bundle.PromptID, LastSeq: bundle.LastSeq, At: at,
			})
		},
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// SessionForks returns a page of the forks of a session, newest first. A purged session may have
// forks.
func (db *DB) SessionForks(ctx context.Context, sessionID string, limit int, cursor string) (items []session.Session, next string, err error) {
	before := sessionCursor{ID: "t"} // sorts after every id
	if cursor != "" {
		if err := cursorDecode(cursor, &before); err != nil {
			return nil, "", err
		}
	}
	limit = pageLimit(limit)
	err = db.inTx(ctx, "list forks", pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		ids, err := db.q.ForksOf(ctx, tx, &dbsqlc.ForksOfParams{ParentID: sessionID, Before: before.ID, MaxItems: int32(limit) + 1})
		if err != nil {
			return err
		}
		if len(ids) == 0 {
			exists, err := db.q.SessionExists(ctx, tx, sessionID)
			if err == nil && !exists {
				err = noSession(sessionID)
			}
			return err
		}
		if len(ids) > limit {
			ids = ids[:limit]
			next = cursorEncode(sessionCursor{ID: ids[limit-1]})
		}
		keys := make([]listKey, len(ids))
		for i, id := range ids {
			keys[i] = listKey{ID: id}
		}
		items, err = db.sessionsOf(ctx, tx, keys)
		return err
	})
	return items, next, err
}
