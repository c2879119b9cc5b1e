package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/overwinter-dev/overwinter/internal/bundle"
	"github.com/overwinter-dev/overwinter/internal/manifest"
	"github.com/overwinter-dev/overwinter/internal/postgres/dbsqlc"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// importBatch is the number of blocks that one round trip inserts.
const importBatch = 500

// SessionImport stores a hibernated session with a bundle whose files are in an archive, which the
// caller has validated. It is one transaction: an interrupted import leaves nothing. Idempotency
// works as in SessionCreate.
func (db *DB) SessionImport(ctx context.Context, in bundle.Import, archive io.Reader, idem session.Idempotency) (stored session.Session, created bool, err error) {
	ctx, cancel := db.bulk(ctx)
	defer cancel()
	err = db.inTx(ctx, "import a session", pgx.TxOptions{}, func(tx pgx.Tx) error {
		at, err := clock(ctx, db.q, tx)
		if err != nil {
			return err
		}
		if idem.Key != "" {
			earlier, err := db.keyTake(ctx, tx, idem, in.Session.ID, at)
			if err != nil {
				return err
			}
			if earlier != "" {
				stored, err = db.sessionIn(ctx, tx, earlier)
				return err
			}
		}
		if err := db.importInto(ctx, tx, in, archive, at); err != nil {
			return err
		}
		created = true
		stored, err = db.sessionIn(ctx, tx, in.Session.ID)
		return err
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

func (db *DB) importInto(ctx context.Context, tx pgx.Tx, in bundle.Import, archive io.Reader, at time.Time) error {
	s := in.Session
	insert := dbsqlc.ImportSessionInsertParams{
		ID: s.ID, Agent: s.Agent, Profile: s.Profile, Title: s.Title, At: at, IdleTimeoutNs: int64(s.IdleTimeout), Metadata: s.Metadata,
	}
	var err error
	if insert.Options, err = json.Marshal(s.Options); err != nil {
		return fmt.Errorf("options of a session: %w", err)
	}
	if s.Workspace != nil {
		if insert.Workspace, err = json.Marshal(s.Workspace); err != nil {
			return fmt.Errorf("workspace of a session: %w", err)
		}
	}
	if len(insert.Metadata) == 0 {
		insert.Metadata = []byte(`{}`)
	}
	if n, err := db.q.ImportSessionInsert(ctx, tx, &insert); err != nil || n == 0 {
		if err == nil {
			err = illegal("session %s was deleted; its id is not used again", s.ID)
		}
		return err
	}
	row, err := db.q.SessionLock(ctx, tx, s.ID)
	if err != nil {
		return err
	}
	if err := db.importBlocks(ctx, tx, s.ID, in.Blocks); err != nil {
		return err
	}
	if err := db.q.ForkConversations(ctx, tx, &dbsqlc.ForkConversationsParams{SessionNo: row.No, SessionID: s.ID}); err != nil {
		return err
	}
	if err := db.q.ForkEvents(ctx, tx, &dbsqlc.ForkEventsParams{SessionNo: row.No, SessionID: s.ID, At: at}); err != nil {
		return err
	}
	last := int64(len(in.Blocks))
	if err := db.q.SessionAdvance(ctx, tx, &dbsqlc.SessionAdvanceParams{ID: s.ID, LastSeq: last}); err != nil {
		return err
	}
	archiveID := session.NewID(bundle.ArchivePrefix)
	if err := db.q.ArchivePut(ctx, tx, archiveID); err != nil {
		return err
	}
	bytes, err := db.archiveParts(ctx, tx, archiveID, 0, archive)
	if err != nil {
		return err
	}
	if err := db.q.ArchiveSize(ctx, tx, &dbsqlc.ArchiveSizeParams{ID: archiveID, Bytes: bytes}); err != nil {
		return err
	}
	if in.Manifest.AgentFiles == nil {
		in.Manifest.AgentFiles = []manifest.File{}
	}
	in.Manifest.LastSeq = last
	list, err := json.Marshal(in.Manifest)
	if err != nil {
		return fmt.Errorf("manifest of an import: %w", err)
	}
	id := session.NewID(session.BundlePrefix)
	err = db.q.ImportBundle(ctx, tx, &dbsqlc.ImportBundleParams{
		ID: id, SessionID: s.ID, Manifest: list, At: at, LastSeq: last, PromptID: in.PromptID, Outcome: string(in.Outcome), ArchiveID: archiveID,
	})
	if err != nil {
		return err
	}
	if err := db.q.SessionSetHead(ctx, tx, &dbsqlc.SessionSetHeadParams{ID: s.ID, HeadBundleID: &id}); err != nil {
		return err
	}
	return db.q.ImportInsert(ctx, tx, &dbsqlc.ImportInsertParams{
		SessionID: s.ID, MemoryID: in.MemoryID, Remembers: in.Remembers, Place: text(in.Place), At: at,
	})
}

// importBlocks inserts the blocks of a conversation, numbered from 1.
func (db *DB) importBlocks(ctx context.Context, tx pgx.Tx, sessionID string, blocks []bundle.ImportedBlock) error {
	n := int64(0)
	for some := range slices.Chunk(blocks, importBatch) {
		var batch pipeline
		for _, b := range some {
			n++
			size := int32(len(b.JSON))
			err := db.q.ImportBlock(ctx, &batch, &dbsqlc.ImportBlockParams{
				SessionID: sessionID, ConversationID: b.Conversation, BlockID: b.ID, N: n, Block: b.JSON, Size: &size,
			})
			if err != nil {
				return err
			}
		}
		if err := batch.send(ctx, tx.Conn()); err != nil {
			return err
		}
	}
	return nil
}
