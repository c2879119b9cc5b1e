package postgres

import (
	"context"
	"errors"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/overwinter-dev/overwinter/internal/bundle"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/fork"
	"github.com/overwinter-dev/overwinter/internal/postgres/dbsqlc"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// revertTarget validates and completes the target of a revert: a bundle for a revert with files,
// else the first prompt to undo. Errors: no_bundle_there if there is no bundle at the point of a
// prompt, illegal_state if there is nothing to undo or the conversation of the bundle has been
// undone before.
func (s *sessionTx) revertTarget(ctx context.Context, db *DB, c *session.Command, p session.Pending) error {
	if p.Status == session.Error || p.Status == session.Initializing {
		return nil // refused regardless of its target
	}
	if c.PromptID != "" {
		row, err := s.promptGet(ctx, c.PromptID)
		if err != nil {
			return err
		}
		if fault := session.JudgeRevert(promptOf(row)); fault != nil {
			return fault
		}
		if c.Kind == session.CommandRevert {
			return nil
		}
	}
	v, err := db.forkPoint(ctx, s, fork.Fork{SessionID: s.row.ID, BundleID: c.BundleID, PromptID: c.PromptID, Before: true})
	if err != nil {
		return err
	}
	undone, err := s.q.BundleIsUndone(ctx, s, &dbsqlc.BundleIsUndoneParams{SessionID: s.row.ID, LastSeq: v.LastSeq})
	if err != nil {
		return err
	}
	if undone {
		return illegal("the state of bundle %s was undone by a revert; fork the session at the bundle instead", v.ID)
	}
	if c.Kind == session.CommandRevertFiles {
		if v.SnapshotID == "" {
			return illegal("bundle %s was imported and has no snapshot; fork the session at the bundle instead", v.ID)
		}
		c.BundleID = v.ID
		for _, other := range p.Commands {
			if other.Kind == c.Kind && other.BundleID != c.BundleID && p.Status == session.Restoring {
				return illegal("the session is being restored to bundle %s; wait until it is running", other.BundleID)
			}
		}
		return s.snapshotClaim(ctx, v.SnapshotID)
	}
	runs, err := s.q.RunsAfter(ctx, s, &dbsqlc.RunsAfterParams{SessionID: s.row.ID, Seq: v.LastSeq, Reverted: session.ReasonReverted})
	if err != nil {
		return err
	}
	if len(runs) == 0 {
		return illegal("no prompt was run after bundle %s", v.ID)
	}
	c.PromptID = runs[0].PromptID
	return nil
}

// RevertDue returns the pending revert with files of a session, if there is one, and its target
// bundle.
func (db *DB) RevertDue(ctx context.Context, sessionID string) (due bundle.RevertDue, ok bool, err error) {
	const doing = "look for a revert"
	pending, err := db.q.CommandsPending(ctx, db.pool, sessionID)
	if err != nil {
		return due, false, fault(doing, err)
	}
	if !slices.ContainsFunc(pending, func(c dbsqlc.SessionCommand) bool { return session.CommandKind(c.Kind) == session.CommandRevertFiles }) {
		return due, false, nil // as nearly always
	}
	err = db.inTx(ctx, doing, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		rows, err := db.q.CommandsPending(ctx, tx, sessionID)
		if err != nil {
			return err
		}
		for _, row := range rows {
			if session.CommandKind(row.Kind) != session.CommandRevertFiles {
				continue
			}
			due.CommandID, ok = row.ID, true
			v, err := db.forkPoint(ctx, tx, fork.Fork{SessionID: sessionID, BundleID: row.BundleID})
			if refusal, ok := errors.AsType[*failure.Error](err); ok {
				due.Impossible = refusal.Message
				return nil
			}
			if err != nil {
				return err
			}
			open, err := db.q.RunGetOpen(ctx, tx, sessionID)
			if err == nil {
				due.Impossible = "run " + open.ID + " waits for an answer to a question"
				return nil
			}
			if !isNoRows(err) {
				return err
			}
			bundle, err := bundleViewOf(v)
			due.Bundle = bundle.Bundle
			return err
		}
		return nil
	})
	return due, ok, err
}

// SessionRevertTo completes a revert with files after the sandbox of a generation has been restored
// from the target bundle. A copy of the bundle becomes the head; later blocks are removed from the
// conversation, with an event each, and their prompts are marked as reverted. The stored
// transcripts are deleted: the next turn stores those of the sandbox. The command ends. It returns
// illegal_state if the command is not pending, a run is open, or the generation is not the newest.
func (db *DB) SessionRevertTo(ctx context.Context, sessionID string, generation int64, commandID string) error {
	ctx, cancel := db.bulk(ctx)
	defer cancel()
	return db.inSession(ctx, "revert a session", sessionID, func(s *sessionTx) error {
		if generation != s.row.Generation {
			return illegal("generation %d is not the newest, which is %d", generation, s.row.Generation)
		}
		p, err := s.commandable(ctx)
		if err != nil {
			return err
		}
		if p.RunID != "" {
			return illegal("run %s has not ended", p.RunID)
		}
		for _, c := range p.Commands {
			if c.ID == commandID {
				return s.revertTo(ctx, db, generation, c)
			}
		}
		return illegal("command %s is no longer pending", commandID)
	})
}

func (s *sessionTx) revertTo(ctx context.Context, db *DB, generation int64, c session.Command) error {
	v, err := db.forkPoint(ctx, s, fork.Fork{SessionID: s.row.ID, BundleID: c.BundleID})
	if err != nil {
		return err
	}
	if err := s.snapshotClaim(ctx, v.SnapshotID); err != nil {
		return err
	}
	runs, err := s.q.RunsAfter(ctx, s, &dbsqlc.RunsAfterParams{SessionID: s.row.ID, Seq: v.LastSeq, Reverted: session.ReasonReverted})
	if err != nil {
		return err
	}
	ids := make([]string, len(runs))
	for i, r := range runs {
		ids[i] = r.ID
	}
	if err := s.blocksRemoveFrom(ctx, v.LastSeq+1); err != nil {
		return err
	}
	if err := s.promptsRevert(ctx, ids); err != nil {
		return err
	}
	if err := s.q.TranscriptsForget(ctx, s, s.row.ID); err != nil {
		return err
	}
	if err := s.filesRevert(ctx, v.ID); err != nil {
		return err
	}
	id := session.NewID(session.BundlePrefix)
	err = s.q.RevertBundle(ctx, s, &dbsqlc.RevertBundleParams{ID: id, BundleID: v.ID, Generation: generation, LastSeq: s.row.LastSeq, At: s.now})
	if err != nil {
		return err
	}
	if err := s.q.SessionSetHead(ctx, s, &dbsqlc.SessionSetHeadParams{ID: s.row.ID, HeadBundleID: &id}); err != nil {
		return err
	}
	if _, err := s.commandEnd(ctx, c.ID, session.CommandApplied, c.Reason); err != nil {
		return err
	}
	return s.q.SnapshotsRelease(ctx, s, s.row.ID)
}
