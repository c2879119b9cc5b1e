package postgres

import (
	"cmp"
	"context"
	"encoding/json"
	"math"
	"slices"

	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/event"
	"github.com/overwinter-dev/overwinter/internal/postgres/dbsqlc"
	"github.com/overwinter-dev/overwinter/internal/session"
	"github.com/overwinter-dev/overwinter/internal/transcript"
)

// RunsFrom returns the runs of a prompt and of all later prompts, oldest first; none if the prompt
// has had no run.
func (db *DB) RunsFrom(ctx context.Context, sessionID, promptID string) ([]string, error) {
	ids, err := db.q.RunsFrom(ctx, db.pool, &dbsqlc.RunsFromParams{SessionID: sessionID, PromptID: promptID})
	return ids, fault("find the runs of a prompt", err)
}

// SessionRevert reverts a conversation: it replaces the agent's memory by files, in new versions,
// removes the blocks of runs and all later ones, with an event each, and marks their prompts as
// reverted. Stored files that are not among the new ones become empty. A repeated call changes only
// versions. It returns illegal_state during a run, after a run that is not one of those, or if the generation is not the newest.
func (db *DB) SessionRevert(ctx context.Context, sessionID string, generation int64, runIDs []string, files []transcript.File) error {
	ctx, cancel := db.bulk(ctx)
	defer cancel()
	return db.inSession(ctx, "take a conversation back", sessionID, func(s *sessionTx) error {
		if generation != s.row.Generation {
			return illegal("generation %d is not the newest, which is %d", generation, s.row.Generation)
		}
		if _, err := s.q.RunGetOpen(ctx, s, sessionID); err == nil {
			return illegal("a turn is in progress")
		} else if !isNoRows(err) {
			return err
		}
		follow, err := s.q.RunsFollow(ctx, s, &dbsqlc.RunsFollowParams{SessionID: sessionID, RunIds: runIDs})
		if err != nil {
			return err
		}
		if follow { // they are neither in the memory of files nor to be removed
			return illegal("another run has begun since")
		}
		if err := s.transcriptsReplace(ctx, db, files); err != nil {
			return err
		}
		return s.blocksRemove(ctx, runIDs)
	})
}

// transcriptsReplace stores files as the next versions of the stored ones.
func (s *sessionTx) transcriptsReplace(ctx context.Context, db *DB, files []transcript.File) error {
	positions, err := transcriptPositions(ctx, s.q, s, s.row.ID)
	if err != nil {
		return err
	}
	var segments []transcript.Segment
	for _, p := range positions {
		segment := transcript.Segment{SessionID: s.row.ID, Path: p.Path, Version: p.Version + 1}
		if i := slices.IndexFunc(files, func(f transcript.File) bool { return f.Path == p.Path }); i >= 0 {
			segment.Data = files[i].Data
		}
		segments = append(segments, segment)
	}
	limits := db.options.Transcripts
	limits.TurnReplaced = math.MaxInt64 // not requested by a sandbox
	var was storedTranscripts
	var in lookups
	err = in.also(ctx, s.Conn, func(in *lookups) error { return was.read(ctx, s.q, in, s.row.ID, segments) })
	if err != nil {
		return err
	}
	return s.transcriptAppend(ctx, db, limits, segments, was)
}

func (s *sessionTx) blocksRemove(ctx context.Context, runIDs []string) error {
	first, err := s.q.RunsFirstSeq(ctx, s, &dbsqlc.RunsFirstSeqParams{SessionID: s.row.ID, RunIds: runIDs})
	if err != nil {
		return err
	}
	if first > 0 {
		if err := s.blocksRemoveFrom(ctx, first); err != nil {
			return err
		}
	}
	return s.promptsRevert(ctx, runIDs)
}

// blocksRemoveFrom removes the blocks that appeared at or after an event, newest first.
func (s *sessionTx) blocksRemoveFrom(ctx context.Context, first int64) error {
	removed, err := s.q.BlocksRemove(ctx, s, &dbsqlc.BlocksRemoveParams{SessionID: s.row.ID, FirstSeq: first, AtSeq: new(s.row.LastSeq + 1)})
	if err != nil {
		return err
	}
	slices.SortFunc(removed, func(a, b dbsqlc.BlocksRemoveRow) int { return cmp.Compare(b.FirstSeq, a.FirstSeq) }) // newest first
	for _, r := range removed {
		data, err := json.Marshal(conversation.BlockRemoved{BlockID: r.BlockID})
		if err != nil {
			return err
		}
		s.row.LastSeq++
		s.log.add(&eventRow{
			SessionID: s.row.ID, SessionNo: s.row.No, Seq: s.row.LastSeq, Type: string(conversation.EventBlockRemoved),
			ConversationID: r.ConversationID, At: s.now, Data: string(data),
		})
	}
	return nil
}

// promptsRevert marks the prompts of runs as reverted.
func (s *sessionTx) promptsRevert(ctx context.Context, runIDs []string) error {
	prompts, err := s.q.PromptsRevert(ctx, s, &dbsqlc.PromptsRevertParams{
		SessionID: s.row.ID, RunIds: runIDs, Reason: session.ReasonReverted,
	})
	if err != nil {
		return err
	}
	for _, row := range prompts {
		if err := s.add(event.TypePrompt, row.RunID, event.PromptChanged(promptChanged(row))); err != nil {
			return err
		}
	}
	return nil
}
