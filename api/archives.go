package api

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/overwinter-dev/overwinter/internal/bundle"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/resource"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// archiveStore stores the archives of bundles.
type archiveStore interface {
	// ArchiveRequest requests the archive of a bundle and returns its current state. Error:
	// bundle_not_found.
	ArchiveRequest(ctx context.Context, bundleID string) (bundle.Archive, error)
	// ArchiveShow returns the archive of a bundle. Errors: bundle_not_found, illegal_state if it
	// was not requested.
	ArchiveShow(ctx context.Context, bundleID string) (bundle.Archive, error)
	// ArchiveContent reads an archive in pieces. Each piece is valid until the next one is read.
	ArchiveContent(ctx context.Context, archiveID string) iter.Seq2[[]byte, error]
	// SessionImport stores a session that continues from an archive. Idempotency works as in
	// SessionCreate.
	SessionImport(ctx context.Context, in bundle.Import, archive io.Reader, idem Idempotency) (stored session.Session, created bool, err error)
}

// archives are the routes of portable bundles.
type archives struct {
	*sessions
	bundles     bundleStore
	transcripts transcriptStore
	archived    archiveStore
	importing   chan struct{} // limits concurrent imports
}

// The routes that send and receive archives. They have no fixed time limit, because their duration
// depends on the client.
const (
	exportRoute = "/api/bundles/:bundleId/export"
	importRoute = "/api/bundles/import"
)

const archiveType = "application/gzip"

// request handles POST …/export: it requests the archive.
func (s *archives) request(c echo.Context) error {
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
	ctx, cancel := context.WithTimeout(c.Request().Context(), s.cfg.RequestTimeout)
	defer cancel()
	a, err := s.archived.ArchiveRequest(ctx, id)
	if err != nil {
		return err
	}
	status := http.StatusOK
	if a.State == bundle.ArchivePending {
		status = http.StatusAccepted
	}
	return c.JSON(status, resource.Archive(a))
}

// export handles GET …/export: it sends the archive with the conversation, and without the values of secrets.
func (s *archives) export(c echo.Context) error {
	id, err := bundleID(c)
	if err != nil {
		return err
	}
	ctx := c.Request().Context()
	e, err := s.exportOf(ctx, id)
	if err != nil {
		return err
	}
	out := &transcriptWriter{server: s.Server, response: c.Response(), control: http.NewResponseController(c.Response()), contentType: archiveType}
	out.buffer = bufio.NewWriterSize(out, 64<<10)
	if err := out.control.SetReadDeadline(time.Time{}); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return fmt.Errorf("lift read deadline: %w", err)
	}
	if err = e.write(ctx, out.buffer); err == nil {
		err = out.end()
	}
	if err == nil || !out.response.Committed {
		return err
	}
	s.logger.LogAttrs(ctx, slog.LevelWarn, "archive download was interrupted", slog.String("bundle_id", id), slog.Any("error", err))
	panic(http.ErrAbortHandler) // so that the response does not look complete
}

// exportOf finds the contents of an export.
func (s *archives) exportOf(ctx context.Context, id string) (*archiveExport, error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.RequestTimeout)
	defer cancel()
	v, err := s.bundles.BundleShow(ctx, id)
	if err != nil {
		return nil, err
	}
	a, err := s.archived.ArchiveShow(ctx, id)
	if err != nil {
		return nil, err
	}
	switch a.State {
	case bundle.ArchivePending:
		return nil, failure.Errorf(failure.IllegalState, "the archive of bundle %s is not ready yet", id)
	case bundle.ArchiveFailed:
		return nil, failure.Errorf(failure.IllegalState, "the archive of bundle %s could not be made: %s", id, a.Reason)
	case bundle.ArchiveReady:
	}
	sess, err := s.store.SessionGet(ctx, v.SessionID)
	if err != nil {
		return nil, err
	}
	masker, err := s.cfg.Masks.Masker(ctx)
	return &archiveExport{archives: s, archive: a, masker: masker, bundle: v, session: sess}, err
}
