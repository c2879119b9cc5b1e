package api

import (
	"context"
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/overwinter-dev/overwinter/internal/bundle"
	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/resource"
	"github.com/overwinter-dev/overwinter/internal/session"
	"github.com/overwinter-dev/overwinter/internal/workspacefile"
)

// bundleStore reads the bundles of sessions.
type bundleStore interface {
	// BundleList returns a page of a session's bundles, newest first. Error: session_not_found.
	BundleList(ctx context.Context, sessionID string, limit int, cursor string) (items []bundle.View, nextCursor string, err error)
	// BundleShow returns a bundle. Error: bundle_not_found.
	BundleShow(ctx context.Context, bundleID string) (bundle.View, error)
	// BundlePin pins or unpins a bundle. Errors: bundle_not_found, limit_reached, illegal_state if
	// its snapshot is deleted.
	BundlePin(ctx context.Context, bundleID string, pinned bool) (bundle.View, error)
	// ConversationAt is ConversationPage for the conversation of a bundle.
	ConversationAt(ctx context.Context, bundleID string, limit int, cursor string) (page conversation.Conversation, nextCursor string, err error)
	// BundleFileList, BundleFileGet and BundleDiffGet read the files of a bundle, as a fileStore
	// reads those of a session. Errors: bundle_not_found, file_not_saved if the file is not stored.
	BundleFileList(ctx context.Context, bundleID, prefix string, limit int, cursor string) (items []workspacefile.Info, nextCursor string, err error)
	BundleFileGet(ctx context.Context, bundleID, path string) (workspacefile.Content, error)
	BundleDiffGet(ctx context.Context, bundleID string) (*workspacefile.Diff, error)
}

// bundles are the routes of bundles.
type bundles struct {
	*Server
	store bundleStore
}

func bundleID(c echo.Context) (string, error) { return pathID(c, "bundleId", session.BundlePrefix) }

func (s *bundles) list(c echo.Context) error {
	id, err := sessionID(c)
	if err != nil {
		return err
	}
	limit, cursor, err := listQuery(c)
	if err != nil {
		return err
	}
	items, next, err := s.store.BundleList(c.Request().Context(), id, limit, cursor)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, newPage(resource.Bundles(items), next))
}

func (s *bundles) get(c echo.Context) error {
	id, err := bundleID(c)
	if err != nil {
		return err
	}
	v, err := s.store.BundleShow(c.Request().Context(), id)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, resource.Bundle(v))
}

// pin handles POST …/pin and …/unpin.
func (s *bundles) pin(pinned bool) echo.HandlerFunc {
	return func(c echo.Context) error {
		id, err := bundleID(c)
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
		v, err := s.store.BundlePin(c.Request().Context(), id, pinned)
		if err != nil {
			return err
		}
		return c.JSON(http.StatusOK, resource.Bundle(v))
	}
}

func (s *bundles) blocks(c echo.Context) error {
	id, err := bundleID(c)
	if err != nil {
		return err
	}
	limit, cursor, err := pageQuery(c, maxBlockLimit, maxBlockLimit)
	if err != nil {
		return err
	}
	conv, next, err := s.store.ConversationAt(c.Request().Context(), id, limit, cursor)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, newBlockPage(conv, next))
}
