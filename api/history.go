package api

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/overwinter-dev/overwinter/internal/resource"
)

// Bounds of a page of a workflow's history.
const (
	defaultHistoryLimit = 250
	maxHistoryLimit     = 500
)

// history returns a page of the history of the session's workflow, with masked secrets.
func (s *explanations) history(c echo.Context) error {
	id, err := sessionID(c)
	if err != nil {
		return err
	}
	limit, cursor, err := pageQuery(c, defaultHistoryLimit, maxHistoryLimit)
	if err != nil {
		return err
	}
	ctx := c.Request().Context()
	if _, err := s.store.SessionGet(ctx, id); err != nil {
		return err
	}
	masker, err := s.cfg.Masks.Masker(ctx)
	if err != nil {
		return err
	}
	bounded, cancel := context.WithTimeout(ctx, s.cfg.HistoryTimeout)
	defer cancel()
	events, next, err := s.cfg.Signaler.HistoryPage(bounded, id, limit, cursor, func(raw json.RawMessage) json.RawMessage { return masker.JSON(raw) })
	if err != nil {
		return err
	}
	if events == nil {
		events = []resource.HistoryEventJSON{}
	}
	return c.JSON(http.StatusOK, newPage(events, next))
}
