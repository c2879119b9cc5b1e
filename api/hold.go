package api

import (
	"context"
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/overwinter-dev/overwinter/internal/resource"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// holdStore holds queues and releases them.
type holdStore interface {
	// SessionHold holds the queue of a session: no prompt starts until SessionRelease. Errors:
	// session_not_found, session_terminated.
	SessionHold(ctx context.Context, sessionID, reason string) (session.Session, error)
	// SessionRelease ends a hold, and returns the prompt to notify the workflow of, if any.
	SessionRelease(ctx context.Context, sessionID string) (released session.Session, next *session.Prompt, err error)
}

// holds are the routes that hold and release queues. They do not wait for a workflow, because every
// claim checks the row.
type holds struct {
	*Server
	store holdStore
}

func (s *holds) hold(c echo.Context) error {
	id, err := sessionID(c)
	if err != nil {
		return err
	}
	body, _, err := readBody(c, true)
	if err != nil {
		return err
	}
	reason, given := body.text("reason")
	if given && len(reason) > session.MaxHoldReasonBytes {
		body.wrong("reason", "is %d bytes long; at most %d are allowed", len(reason), session.MaxHoldReasonBytes)
	}
	if err := body.done(); err != nil {
		return err
	}
	held, err := s.store.SessionHold(c.Request().Context(), id, reason)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, resource.Session(held))
}

func (s *holds) release(c echo.Context) error {
	id, err := sessionID(c)
	if err != nil {
		return err
	}
	body, _, err := readBody(c, true)
	if err != nil {
		return err
	}
	if err := body.done(); err != nil {
		return err
	}
	ctx := c.Request().Context()
	released, next, err := s.store.SessionRelease(ctx, id)
	if err != nil {
		return err
	}
	if next != nil {
		s.notifyPrompt(ctx, *next)
	}
	return c.JSON(http.StatusOK, resource.Session(released))
}

// notifyPrompt notifies a session's workflow of a waiting prompt, directly or through its
// attendant, as the store has decided. For a collected prompt it does so later.
func (s *Server) notifyPrompt(ctx context.Context, p session.Prompt) {
	if p.CollectFor > 0 {
		s.collections.add(p.SessionID, p.CollectFor) //nolint:contextcheck // it is after the request
	}
	if p.Interrupts {
		s.signal(ctx, p.SessionID, func(ctx context.Context) error { return s.cfg.Signaler.SignalCommands(ctx, p.SessionID) })
	}
	switch {
	case p.Notify:
		s.signalPrompt(ctx, p.SessionID, p.ID, p.Ordinal)
	case p.Attended:
		s.attended.add(ctx, p.SessionID, session.QueuedPrompt{ID: p.ID, Ordinal: p.Ordinal})
	}
}
