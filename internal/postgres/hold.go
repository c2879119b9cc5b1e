package postgres

import (
	"context"
	"slices"

	"github.com/overwinter-dev/overwinter/internal/event"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/postgres/dbsqlc"
	"github.com/overwinter-dev/overwinter/internal/session"
)

func (s *sessionTx) hold() session.QueueHold {
	return session.QueueHold{Since: orZero(s.row.HeldAt), Reason: s.row.HeldReason}
}

// held reports whether the queue is held. Any code that starts a prompt, or wakes a session for
// one, must check it under the lock.
func (s *sessionTx) held() bool { return s.row.HeldAt != nil }

// SessionHold holds the queue of a session: until SessionRelease no prompt starts, and none wakes
// the session. If the queue is already held, only the reason changes, if one is given. Errors:
// session_not_found, session_terminated.
func (db *DB) SessionHold(ctx context.Context, sessionID, reason string) (held session.Session, err error) {
	reason = text(reason)
	err = db.inSession(ctx, "hold a queue", sessionID, func(s *sessionTx) error {
		if session.State(s.row.Status).Final() {
			return failure.Errorf(failure.Terminated, "the session is terminated")
		}
		if !s.held() {
			s.row.HeldAt = &s.now
		} else if reason == "" || reason == s.row.HeldReason {
			held, err = db.sessionGet(ctx, s, sessionID)
			return err
		}
		s.row.HeldReason = reason
		if _, err := s.holdChanged(ctx); err != nil {
			return err
		}
		held, err = db.sessionGet(ctx, s, sessionID)
		return err
	})
	return held, err
}

// SessionRelease ends a hold. It returns the next prompt if its workflow must be signalled, like
// PromptSubmit; nil if there is none, or if the queue was not held. Errors: session_not_found,
// session_terminated.
func (db *DB) SessionRelease(ctx context.Context, sessionID string) (released session.Session, next *session.Prompt, err error) {
	err = db.inSession(ctx, "release a queue", sessionID, func(s *sessionTx) error {
		next = nil
		if session.State(s.row.Status).Final() {
			return failure.Errorf(failure.Terminated, "the session is terminated")
		}
		if s.held() {
			s.row.HeldAt, s.row.HeldReason = nil, ""
			head, err := s.holdChanged(ctx)
			if err != nil {
				return err
			}
			if next, err = s.released(ctx, head); err != nil {
				return err
			}
		}
		released, err = db.sessionGet(ctx, s, sessionID)
		return err
	})
	if err != nil {
		return session.Session{}, nil, err
	}
	return released, next, nil
}

// holdChanged stores the hold and adds an event. The event repeats the first queued prompt, because
// a queue event without changes contains the whole queue.
func (s *sessionTx) holdChanged(ctx context.Context) ([]dbsqlc.PromptHeadRow, error) {
	err := s.q.SessionHold(ctx, s, &dbsqlc.SessionHoldParams{ID: s.row.ID, HeldAt: s.row.HeldAt, HeldReason: s.row.HeldReason})
	if err != nil {
		return nil, err
	}
	head, err := promptHead(ctx, s.q, s, s.row.ID)
	if err != nil {
		return nil, err
	}
	queue := headOf(head)
	if len(head) == 0 {
		return head, s.addQueue(queue)
	}
	return head, s.addQueue(queue, queueChange(event.QueueUpdated, queue.Items[0]))
}

// released returns the first prompt of a queue whose restrictions were just relaxed, for example
// after a hold, if the prompt can start now and the workflow must be signalled.
func (s *sessionTx) released(ctx context.Context, head []dbsqlc.PromptHeadRow) (*session.Prompt, error) {
	if _, ready := collecting(head); !ready {
		return nil, nil
	}
	queue := headOf(head)
	at := slices.IndexFunc(queue.Items, func(i event.QueueItem) bool { return i.Status == session.PromptQueued })
	if at < 0 || queue.Processing > 0 || s.row.Status == string(session.Error) || !s.shouldSignal() {
		return nil, nil
	}
	next := session.Prompt{ID: queue.Items[at].PromptID, SessionID: s.row.ID, Ordinal: queue.Items[at].Ordinal, Status: session.PromptQueued}
	next.Attended = s.row.Attendant != ""
	next.Notify = !next.Attended
	return &next, s.signalled(ctx, next.Notify)
}

// startable refuses the first sandbox of a lazy session whose queue is held, unless a client
// requests it.
func (s *sessionTx) startable(ctx context.Context, generation int64) error {
	if !s.held() || !s.row.Lazy || s.row.Status != string(session.Initializing) || generation <= s.row.Generation {
		return nil
	}
	pending, err := s.q.CommandsPending(ctx, s, s.row.ID)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(pending, func(c dbsqlc.SessionCommand) bool { return c.Kind == string(session.CommandWake) }) {
		return nil
	}
	return failure.Errorf(failure.QueueHeld, "the queue is held: no prompt starts the session")
}
