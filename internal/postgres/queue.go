package postgres

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"slices"

	"github.com/overwinter-dev/overwinter/internal/event"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/postgres/dbsqlc"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// submittedAs reports whether a prompt was submitted with the same body. If its content has been
// replaced since, it compares digests.
func submittedAs(have dbsqlc.Prompt, want session.Prompt) bool {
	if have.SubmittedDigest != nil {
		return bytes.Equal(have.SubmittedDigest, submittedDigest(want.Content, string(want.Mode), string(want.OnUnknown)))
	}
	return have.Content == want.Content && have.Mode == string(want.Mode) && have.OnUnknown == string(want.OnUnknown)
}

// submittedDigest returns the digest of the body of a prompt. The separator NUL occurs in neither
// mode nor policy.
func submittedDigest(content, mode, onUnknown string) []byte {
	sum := sha256.Sum256([]byte(mode + "\x00" + onUnknown + "\x00" + content))
	return sum[:]
}

// queued returns a queued prompt; prompt_not_queued if it has another status.
func (s *sessionTx) queued(ctx context.Context, promptID string) (dbsqlc.Prompt, error) {
	p, err := s.promptGet(ctx, promptID)
	if err == nil && p.Status != string(session.PromptQueued) {
		err = failure.Errorf(failure.NotQueued, "the prompt is %s, not queued", p.Status)
	}
	return p, err
}

// PromptReplace replaces the content of a queued prompt, which keeps its id and its place. The same
// content changes nothing. Errors: prompt_not_found, prompt_not_queued, too_large if the prompts
// joined with it would be too large.
func (db *DB) PromptReplace(ctx context.Context, sessionID, promptID, content string) (replaced session.Prompt, err error) {
	err = db.inSession(ctx, "replace a prompt", sessionID, func(s *sessionTx) error {
		p, err := s.queued(ctx, promptID)
		if err != nil {
			return err
		}
		if err := s.joinedFit(ctx, p, content); err != nil {
			return err
		}
		if p.Content != content {
			before := p
			p, err = s.q.PromptReplace(ctx, s, &dbsqlc.PromptReplaceParams{
				SessionID: sessionID, ID: promptID, Content: content, Digest: submittedDigest(p.Content, p.Mode, p.OnUnknown),
			})
			if err != nil {
				return err
			}
			if err := s.reportReplaced(ctx, before, p); err != nil {
				return err
			}
		}
		replaced = blocked(promptOf(p), s.row.Status, s.row.StatusReason)
		return nil
	})
	return replaced, err
}

func (s *sessionTx) reportReplaced(ctx context.Context, before, p dbsqlc.Prompt) error {
	if err := s.add(event.TypePrompt, "", event.PromptSubmitted(blocked(promptOf(p), s.row.Status, s.row.StatusReason))); err != nil {
		return err
	}
	if p.Ordinal == 1 && !s.row.TitleGiven && s.row.Title == session.TitleOf(before.Content) {
		s.row.Title = "" // the title was the beginning of the old content
		if err := s.titleFrom(ctx, p.Content); err != nil {
			return err
		}
	}
	return s.reportQueue(ctx, queueChange(event.QueueUpdated, itemOf(p)))
}

// PromptPromote moves a queued prompt, with those joined to it, to the front of the queue. It does
// not change a prompt that is already first. Promotion ends the collection of a prompt: the
// workflow must then be signalled, as for PromptSubmit. Errors: prompt_not_found,
// prompt_not_queued.
func (db *DB) PromptPromote(ctx context.Context, sessionID, promptID string) (promoted session.Prompt, err error) {
	err = db.inSession(ctx, "promote a prompt", sessionID, func(s *sessionTx) error {
		p, err := s.queued(ctx, promptID)
		if err != nil {
			return err
		}
		first, err := s.q.PromptFirst(ctx, s, sessionID)
		if err != nil && !isNoRows(err) {
			return err
		}
		if head := cmp.Or(p.JoinedTo, p.ID); first.ID != "" && first.ID != head { // without a first one, all queued prompts are being collected
			rows, err := s.q.PromptPromote(ctx, s, &dbsqlc.PromptPromoteParams{SessionID: sessionID, ID: head})
			if err != nil {
				return err
			}
			changes, err := s.reportJoined(rows, event.QueueUpdated)
			if err != nil {
				return err
			}
			if err := s.reportQueue(ctx, changes...); err != nil {
				return err
			}
			p.Rank = rows[0].Rank
		}
		collected := p.CollectUntil != nil && p.CollectUntil.After(s.now)
		p.CollectUntil = nil
		promoted = blocked(promptOf(p), s.row.Status, s.row.StatusReason)
		if !collected {
			return nil
		}
		next, err := s.gathered(ctx)
		if err == nil && next != nil {
			promoted.Notify, promoted.Attended = next.Notify, next.Attended
		}
		return err
	})
	return promoted, err
}

// PromptsClear cancels every queued prompt in one transaction, and returns their ids in the order
// of ordinals.
func (db *DB) PromptsClear(ctx context.Context, sessionID string) (cleared []string, err error) {
	err = db.inSession(ctx, "clear a queue", sessionID, func(s *sessionTx) error {
		rows, err := s.q.PromptsClear(ctx, s, &dbsqlc.PromptsClearParams{SessionID: sessionID, Reason: session.ReasonCleared, At: s.now})
		if err != nil {
			return err
		}
		slices.SortFunc(rows, func(a, b dbsqlc.PromptsClearRow) int { return cmp.Compare(a.Ordinal, b.Ordinal) })
		cleared = make([]string, len(rows))
		for i, row := range rows {
			cleared[i] = row.ID
		}
		for chunk := range slices.Chunk(rows, cancelChunk) {
			changes := make([]event.QueueChange, len(chunk))
			for i, row := range chunk {
				if err := s.add(event.TypePrompt, "", event.PromptChanged(promptChanged(dbsqlc.PromptsRevertRow(row)))); err != nil {
					return err
				}
				changes[i] = removed(row.ID, row.Ordinal, row.Status)
			}
			if err := s.reportQueue(ctx, changes...); err != nil {
				return err
			}
		}
		return nil
	})
	return cleared, err
}

func removed(promptID string, ordinal int64, status string) event.QueueChange {
	return queueChange(event.QueueRemoved, event.QueueItem{PromptID: promptID, Ordinal: ordinal, Status: session.PromptStatus(status)})
}
