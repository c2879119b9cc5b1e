package api

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/overwinter-dev/overwinter/internal/resource"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// promptStore stores prompts.
type promptStore interface {
	// PromptSubmit stores a prompt at the end of its session's queue with the events prompt and
	// queue. A repeated call with the same id and body returns the stored prompt, with created
	// false. Errors: prompt_conflict if the body differs, session_not_found, session_terminated,
	// session_in_error, queue_full.
	PromptSubmit(ctx context.Context, p session.Prompt) (stored session.Prompt, position int64, created bool, err error)
	// PromptSubmitIf is PromptSubmit that stores a new prompt only if the needs are met. Otherwise the
	// error is session.ErrUnmet.
	PromptSubmitIf(ctx context.Context, p session.Prompt, needs session.Needs) (stored session.Prompt, position int64, created bool, err error)
	PromptGet(ctx context.Context, sessionID, promptID string) (session.Prompt, error)
	// PromptList returns prompts, oldest first.
	PromptList(ctx context.Context, sessionID string, limit int, cursor string) (items []session.Prompt, nextCursor string, err error)
	// PromptWithdraw cancels a queued prompt. Error: prompt_not_queued if it is no longer queued.
	PromptWithdraw(ctx context.Context, sessionID, promptID string) (session.Prompt, error)
	// PromptResolve requeues a prompt whose outcome is unknown, or sets its outcome. A repeated
	// request returns the current prompt, with changed false.
	PromptResolve(ctx context.Context, r session.Resolve) (p session.Prompt, changed bool, err error)
	needStore
}

// prompts are the routes of prompts.
type prompts struct {
	*Server
	store promptStore
}

// promptAccepted is the response to a stored prompt.
type promptAccepted struct {
	Prompt   resource.PromptJSON `json:"prompt"`
	Position int64               `json:"position"`
}

// promptIDs returns the ids in the path.
func promptIDs(c echo.Context) (sessID, promptID string, err error) {
	if sessID, err = sessionID(c); err != nil {
		return "", "", err
	}
	promptID = c.Param("promptId")
	if strings.Contains(promptID, "/") {
		return "", "", echo.ErrNotFound
	}
	if !session.ValidPromptID(promptID) {
		return "", "", invalid("promptId", "must be 1 to 64 of A-Z a-z 0-9 _ -")
	}
	return sessID, promptID, nil
}

func (s *prompts) promptSubmit(c echo.Context) error {
	id, err := sessionID(c)
	if err != nil {
		return err
	}
	in, err := s.readWithFiles(c, promptField)
	if err != nil {
		return err
	}
	defer in.release()
	body := in.json
	prompt := session.Prompt{
		ID: body.promptID(), SessionID: id, Status: session.PromptQueued, Content: body.content("content"),
		Mode:       session.Mode(body.mode("mode")),
		OnUnknown:  session.OnUnknown(body.oneOf("onUnknown", string(session.Hold), string(session.Hold), string(session.Retry), string(session.Fail))),
		CollectFor: s.cfg.CollectWindow, RequestID: idOfRequest(c), TraceParent: traceOf(c), CreatedAt: time.Now().UTC().Truncate(time.Millisecond),
	}
	prompt.Attachments = body.attachments("attachments", in.files)
	if err := body.done(); err != nil {
		return err
	}
	return s.accept(c, prompt)
}

// accept stores a prompt and responds with it.
func (s *prompts) accept(c echo.Context, prompt session.Prompt) error {
	ctx := c.Request().Context()
	stored, position, created, err := s.submit(ctx, prompt)
	if err != nil {
		return err
	}
	s.notifyPrompt(ctx, stored)
	status := http.StatusOK
	if created {
		status = http.StatusAccepted
		s.metrics.prompts.Inc()
		c.Response().Header().Set(echo.HeaderLocation, "/api/sessions/"+prompt.SessionID+"/prompts/"+stored.ID)
	}
	return c.JSON(status, promptAccepted{Prompt: resource.Prompt(stored), Position: position})
}

// submit stores a prompt, and refuses it if its agent lacks a required secret. If the secrets are stored,
// the store decides that, in the same transaction; otherwise the session's profile may do without them.
func (s *prompts) submit(ctx context.Context, prompt session.Prompt) (stored session.Prompt, position int64, created bool, err error) {
	stored, position, created, err = s.store.PromptSubmitIf(ctx, prompt, session.Needs{Names: s.required(), Met: s.met})
	if !errors.Is(err, session.ErrUnmet) {
		return stored, position, created, err
	}
	if err := s.promptable(ctx, s.store, prompt); err != nil {
		return session.Prompt{}, 0, false, err
	}
	return s.store.PromptSubmit(ctx, prompt)
}

// mode reads the mode of a prompt.
func (o *object) mode(name string) string {
	return o.oneOf(name, string(session.Followup), string(session.Followup), string(session.Collect), string(session.Steer))
}

func (s *prompts) promptList(c echo.Context) error {
	id, err := sessionID(c)
	if err != nil {
		return err
	}
	limit, cursor, err := listQuery(c)
	if err != nil {
		return err
	}
	items, next, err := s.store.PromptList(c.Request().Context(), id, limit, cursor)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, newPage(resource.Prompts(items), next))
}

func (s *prompts) promptGet(c echo.Context) error {
	id, promptID, err := promptIDs(c)
	if err != nil {
		return err
	}
	prompt, err := s.store.PromptGet(c.Request().Context(), id, promptID)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, resource.Prompt(prompt))
}

// promptWithdraw does not signal the workflow, whose claim of the prompt will find nothing to run.
func (s *prompts) promptWithdraw(c echo.Context) error {
	id, promptID, err := promptIDs(c)
	if err != nil {
		return err
	}
	prompt, err := s.store.PromptWithdraw(c.Request().Context(), id, promptID)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, resource.Prompt(prompt))
}
