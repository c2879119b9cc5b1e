package api

import (
	"context"
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/overwinter-dev/overwinter/internal/resource"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// queueStore changes the queue of a session. Workflows need no notification, because the rows
// determine which prompt a claim gets.
type queueStore interface {
	// PromptReplace replaces the content of a queued prompt. PromptPromote moves a queued prompt to
	// the front of the queue and reports whether the workflow must be notified. Errors:
	// prompt_not_found, prompt_not_queued.
	PromptReplace(ctx context.Context, sessionID, promptID, content string) (session.Prompt, error)
	PromptPromote(ctx context.Context, sessionID, promptID string) (session.Prompt, error)
	// PromptsClear cancels every queued prompt and returns their ids.
	PromptsClear(ctx context.Context, sessionID string) (cleared []string, err error)
}

// queues are the routes that change queues.
type queues struct {
	*Server
	store queueStore
}

func (s *queues) replace(c echo.Context) error {
	id, promptID, err := promptIDs(c)
	if err != nil {
		return err
	}
	body, _, err := readBody(c, false)
	if err != nil {
		return err
	}
	content := body.content("content")
	if err := body.done(); err != nil {
		return err
	}
	prompt, err := s.store.PromptReplace(c.Request().Context(), id, promptID, content)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, resource.Prompt(prompt))
}

func (s *queues) promote(c echo.Context) error {
	id, promptID, err := promptIDs(c)
	if err != nil {
		return err
	}
	if err := emptyBody(c); err != nil {
		return err
	}
	ctx := c.Request().Context()
	prompt, err := s.store.PromptPromote(ctx, id, promptID)
	if err != nil {
		return err
	}
	s.notifyPrompt(ctx, prompt)
	return c.JSON(http.StatusOK, resource.Prompt(prompt))
}

// cleared is the response to a clear.
type cleared struct {
	PromptIDs []string `json:"promptIds"`
}

func (s *queues) clear(c echo.Context) error {
	id, err := sessionID(c)
	if err != nil {
		return err
	}
	if err := emptyBody(c); err != nil {
		return err
	}
	ids, err := s.store.PromptsClear(c.Request().Context(), id)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, cleared{PromptIDs: ids})
}

// emptyBody refuses a body with fields.
func emptyBody(c echo.Context) error {
	body, _, err := readBody(c, true)
	if err != nil {
		return err
	}
	return body.done()
}
