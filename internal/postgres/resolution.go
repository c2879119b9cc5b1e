package postgres

import (
	"context"

	"github.com/overwinter-dev/overwinter/internal/event"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/postgres/dbsqlc"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// PromptResolve resolves a prompt whose outcome is unknown: it is queued again in its place, gets
// the outcome that a person has chosen, or is cancelled. Repeating the request returns the prompt
// in its current state, with changed false. Other errors: prompt_not_found, run_not_found,
// prompt_not_unknown; for a retry also session_terminated, session_in_error and queue_full.
func (db *DB) PromptResolve(ctx context.Context, r session.Resolve) (resolved session.Prompt, changed bool, err error) {
	err = db.inSession(ctx, "resolve a prompt", r.SessionID, func(s *sessionTx) error {
		row, err := s.promptGet(ctx, r.PromptID)
		if err != nil {
			return err
		}
		resolved, changed = promptOf(row), false
		judged := resolved
		if row.JoinedTo != "" { // an api of the previous release has resolved only the other prompt
			head, err := s.promptGet(ctx, row.JoinedTo)
			if err != nil {
				return err
			}
			if head.Status != string(session.PromptUnknown) {
				judged.JoinedTo = ""
			}
		}
		already, refused := session.JudgeResolve(r, judged, session.State(s.row.Status), s.row.StatusReason)
		switch {
		case refused != nil:
			return refused
		case already:
			resolved = blocked(resolved, s.row.Status, s.row.StatusReason)
			resolved.Notify, err = s.signalFor(ctx, resolved.Status == session.PromptQueued && !s.held())
			return err
		}
		changed = true
		if r.Action == session.ResolutionRetry {
			resolved, err = s.promptRetry(ctx, r.PromptID)
			return err
		}
		row, err = s.q.PromptResolve(ctx, s, &dbsqlc.PromptResolveParams{
			SessionID: r.SessionID, ID: r.PromptID, Status: string(r.Status()), Reason: r.Reason(),
			Resolution: string(r.Action), Note: r.Note, At: s.now,
		})
		if err != nil {
			return err
		}
		resolved = promptOf(row)
		joined, err := s.q.PromptsJoinedResolve(ctx, s, &dbsqlc.PromptsJoinedResolveParams{SessionID: r.SessionID, ID: r.PromptID, Status: string(r.Status())})
		if err != nil {
			return err
		}
		if err := s.addPrompt(row); err != nil {
			return err
		}
		_, err = s.reportJoined(joined, event.QueueRemoved)
		return err
	})
	return resolved, changed, err
}

// promptRetry requeues a prompt at the request of a person.
func (s *sessionTx) promptRetry(ctx context.Context, promptID string) (session.Prompt, error) {
	queued, err := s.q.PromptCountQueued(ctx, s, s.row.ID)
	if err != nil {
		return session.Prompt{}, err
	}
	if queued >= session.MaxQueued {
		return session.Prompt{}, failure.Errorf(failure.QueueFull, "%d prompts of the session are waiting, which is the limit; send the prompt again when some have ended, or clear the queue", queued)
	}
	row, err := s.q.PromptRetry(ctx, s, &dbsqlc.PromptRetryParams{SessionID: s.row.ID, ID: promptID, At: s.now})
	if err != nil {
		return session.Prompt{}, err
	}
	if err := s.addPrompt(row); err != nil {
		return session.Prompt{}, err
	}
	joined, err := s.joinedQueue(ctx, row)
	if err != nil {
		return session.Prompt{}, err
	}
	steers, err := s.steersRequeue(ctx, row)
	if err != nil {
		return session.Prompt{}, err
	}
	joined = append(joined, steers...)
	if err := s.reportQueue(ctx, append([]event.QueueChange{queueChange(event.QueueAdded, itemOf(row))}, joined...)...); err != nil {
		return session.Prompt{}, err
	}
	if err := s.q.SessionTouch(ctx, &s.later, &dbsqlc.SessionTouchParams{ID: s.row.ID, At: s.now}); err != nil {
		return session.Prompt{}, err
	}
	p := promptOf(row)
	p.Notify, err = s.signalFor(ctx, !s.held())
	return p, err
}
