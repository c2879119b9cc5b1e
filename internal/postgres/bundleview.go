package postgres

import (
	"context"
	"math"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/overwinter-dev/overwinter/internal/bundle"
	"github.com/overwinter-dev/overwinter/internal/checkpoint"
	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/fork"
	"github.com/overwinter-dev/overwinter/internal/manifest"
	"github.com/overwinter-dev/overwinter/internal/postgres/dbsqlc"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// bundleCursor is the last bundle of a page; bundles are listed newest first.
type bundleCursor struct {
	No int64 `json:"n"`
}

// BundleList returns a page of a session's bundles, newest first. Their manifests omit the agent's
// files.
func (db *DB) BundleList(ctx context.Context, sessionID string, limit int, cursor string) (items []bundle.View, next string, err error) {
	const doing = "list bundles"
	before := bundleCursor{No: math.MaxInt64}
	if cursor != "" {
		if err := cursorDecode(cursor, &before); err != nil {
			return nil, "", err
		}
	}
	limit = pageLimit(limit)
	rows, err := db.q.BundleViews(ctx, db.pool, &dbsqlc.BundleViewsParams{SessionID: sessionID, Before: before.No, MaxItems: int32(limit) + 1})
	if err != nil {
		return nil, "", fault(doing, err)
	}
	if len(rows) == 0 {
		if exists, err := db.q.SessionExists(ctx, db.pool, sessionID); err != nil || !exists {
			return nil, "", orNoSession(doing, sessionID, err)
		}
	}
	for i, row := range rows {
		if i == limit {
			next = cursorEncode(bundleCursor{No: rows[i-1].No})
			break
		}
		v, err := bundleViewOf(dbsqlc.BundleView(row))
		if err != nil {
			return nil, "", err
		}
		items = append(items, v)
	}
	return items, next, nil
}

func orNoSession(doing, sessionID string, err error) error {
	if err != nil {
		return fault(doing, err)
	}
	return noSession(sessionID)
}

// BundleShow returns a bundle, or bundle_not_found.
func (db *DB) BundleShow(ctx context.Context, bundleID string) (bundle.View, error) {
	row, err := db.q.BundleViewGet(ctx, db.pool, bundleID)
	if isNoRows(err) {
		return bundle.View{}, noBundle(bundleID)
	}
	if err != nil {
		return bundle.View{}, fault("read a bundle", err)
	}
	return bundleViewOf(row)
}

func noBundle(id string) error { return failure.Errorf(failure.NoBundle, "there is no bundle %s", id) }

// BundlePin pins a bundle, which exempts it from retention, or unpins it, and returns it. Errors:
// limit_reached if its session has too many pins, illegal_state if its snapshot is deleted or about
// to be.
func (db *DB) BundlePin(ctx context.Context, bundleID string, pinned bool) (bundle.View, error) {
	v, err := db.BundleShow(ctx, bundleID)
	if err != nil {
		return v, err
	}
	err = db.inSession(ctx, "pin a bundle", v.SessionID, func(s *sessionTx) error {
		if pinned && v.PinnedAt.IsZero() {
			n, err := s.q.BundlesPinned(ctx, s, v.SessionID)
			if err != nil {
				return err
			}
			if n >= bundle.MaxPins {
				return failure.Errorf(failure.LimitReached, "the session has %d pinned bundles; at most %d are allowed", n, bundle.MaxPins)
			}
			if err := s.snapshotClaim(ctx, v.SnapshotID); err != nil {
				return err
			}
		}
		n, err := s.q.BundlePin(ctx, s, &dbsqlc.BundlePinParams{ID: bundleID, Pinned: pinned})
		if err != nil || n == 0 {
			return orNoBundle(bundleID, err)
		}
		if !pinned {
			return s.q.SnapshotsRelease(ctx, s, v.SessionID)
		}
		return nil
	})
	if err != nil {
		return v, err
	}
	return db.BundleShow(ctx, bundleID)
}

func orNoBundle(id string, err error) error {
	if err != nil {
		return err
	}
	return noBundle(id)
}

// headsInto marks in sessions which of their bundles are heads.
func (db *DB) headsInto(ctx context.Context, tx dbsqlc.DBTX, items []session.Session) error {
	at := make(map[string]int, len(items))
	ids := make([]string, len(items))
	for i, s := range items {
		ids[i], at[s.ID] = s.ID, i
	}
	rows, err := db.q.BundleHeads(ctx, tx, ids)
	for _, row := range rows {
		s := &items[at[row.SessionID]]
		s.Head, s.HeadSuccess, s.Fork = row.Head, row.HeadSuccess, fork.Point{BundleID: row.ForkBundle, PromptID: row.ForkPrompt, HandedFrom: row.HandedFrom}
		s.Saves = checkpoint.Saves{Policy: checkpoint.Policy(row.Policy), Newest: orZero(row.HeadAt)}
	}
	return err
}

func bundleViewOf(row dbsqlc.BundleView) (bundle.View, error) {
	b, err := bundleOf(dbsqlc.Bundle{
		ID: row.ID, SessionID: row.SessionID, ParentID: row.ParentID, Generation: row.Generation, SnapshotID: row.SnapshotID,
		Manifest: row.Manifest, Verified: row.Verified, Checkpoint: row.Checkpoint, CreatedAt: row.CreatedAt, ArchiveID: row.ArchiveID,
	})
	if err != nil {
		return bundle.View{}, err
	}
	if b.Manifest.AgentFiles == nil {
		b.Manifest.AgentFiles = []manifest.File{}
	}
	receipt, err := receiptOf(row.Receipt)
	return bundle.View{
		Bundle: b, LastSeq: row.LastSeq, PromptID: row.PromptID, Outcome: session.Outcome(row.Outcome), Head: row.IsHead, HasFiles: row.HasFiles,
		PinnedAt: orZero(row.PinnedAt), Receipt: receipt, RestoredAt: orZero(row.RestoredAt),
	}, err
}

// ConversationAt is ConversationPage for the conversation at a bundle, including blocks that a
// later revert removed. A block that the agent has changed since has its current content.
func (db *DB) ConversationAt(ctx context.Context, bundleID string, limit int, cursor string) (c conversation.Conversation, next string, err error) {
	if limit <= 0 || limit > maxBlocks {
		limit = maxBlocks
	}
	var from blockCursor
	if cursor != "" {
		if err := cursorDecode(cursor, &from); err != nil {
			return conversation.Conversation{}, "", err
		}
	}
	ctx, cancel := db.bulk(ctx)
	defer cancel()
	err = db.inTx(ctx, "read the conversation of a bundle", pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		v, err := db.q.BundleViewGet(ctx, tx, bundleID)
		if isNoRows(err) {
			return noBundle(bundleID)
		}
		if err != nil {
			return err
		}
		rows, err := db.q.BlockPageAt(ctx, tx, &dbsqlc.BlockPageAtParams{
			SessionID: v.SessionID, AfterSeq: from.Position, ThroughSeq: v.LastSeq, MaxItems: int32(limit) + 1, MaxBytes: maxBlockBytes,
		})
		if err != nil {
			return err
		}
		page := make([]dbsqlc.Block, 0, len(rows))
		for _, row := range rows[:min(limit, len(rows))] {
			page = append(page, dbsqlc.Block(row))
		}
		if len(page) > 0 {
			last := page[len(page)-1].FirstSeq
			more, err := db.q.BlockPageAt(ctx, tx, &dbsqlc.BlockPageAtParams{SessionID: v.SessionID, AfterSeq: last, ThroughSeq: v.LastSeq, MaxItems: 1, MaxBytes: 1})
			if err != nil {
				return err
			}
			if len(more) > 0 {
				next = cursorEncode(blockCursor{Position: last, Seq: v.LastSeq})
			}
		}
		c, err = threads(page)
		c.Seq = v.LastSeq
		return err
	})
	return c, next, err
}

// bundleRestored records the receipt of a restore in the bundle it restored.
func (s *sessionTx) bundleRestored(ctx context.Context, receipt []byte, at time.Time) error {
	if s.row.HeadBundleID == nil {
		return nil
	}
	return s.q.BundleRestored(ctx, &s.later, &dbsqlc.BundleRestoredParams{ID: *s.row.HeadBundleID, Receipt: receipt, At: at})
}
