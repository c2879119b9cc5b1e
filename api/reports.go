package api

import (
	"context"
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/resource"
)

// reportStore stores the reports of agents and the states of their repositories.
type reportStore interface {
	// WorkspaceGit returns the state of the repository when the newest diff was taken, or nil if
	// there is no diff or no repository.
	WorkspaceGit(ctx context.Context, sessionID string) (*conversation.ObservedGit, error)
	// ReportsGet returns the last reports of the agent. Error: session_not_found.
	ReportsGet(ctx context.Context, sessionID string) (conversation.Reports, error)
	// ScreenshotList returns screenshots, newest first. Error: session_not_found.
	ScreenshotList(ctx context.Context, sessionID string, limit int, cursor string) (items []conversation.Shown, nextCursor string, err error)
}

// reports are the routes of agents' reports.
type reports struct {
	*Server
	store reportStore
}

func (s *reports) git(c echo.Context) error {
	id, err := sessionID(c)
	if err != nil {
		return err
	}
	ctx := c.Request().Context()
	reported, err := s.store.ReportsGet(ctx, id)
	if err != nil {
		return err
	}
	observed, err := s.store.WorkspaceGit(ctx, id)
	if err != nil {
		return err
	}
	if observed != nil {
		masker, err := s.cfg.Masks.Masker(ctx)
		if err != nil {
			return err
		}
		observed.Branch = masker.Text(observed.Branch)
	}
	return c.JSON(http.StatusOK, resource.Git(observed, reported))
}

func (s *reports) screenshots(c echo.Context) error {
	id, err := sessionID(c)
	if err != nil {
		return err
	}
	limit, cursor, err := listQuery(c)
	if err != nil {
		return err
	}
	items, next, err := s.store.ScreenshotList(c.Request().Context(), id, limit, cursor)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, newPage(resource.Screenshots(items), next))
}
