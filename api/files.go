package api

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/labstack/echo/v4"

	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/resource"
	"github.com/overwinter-dev/overwinter/internal/secret"
	"github.com/overwinter-dev/overwinter/internal/workspacefile"
)

// fileStore stores the files of workspaces.
type fileStore interface {
	// FileList returns files sorted by path.
	FileList(ctx context.Context, sessionID, prefix string, limit int, cursor string) (items []workspacefile.Info, nextCursor string, err error)
	// FileGet returns a file of the workspace, with its content if that is saved. Error:
	// file_not_found if the file does not exist or is deleted.
	FileGet(ctx context.Context, sessionID, path string) (workspacefile.Content, error)
	// DiffGet returns the newest diff of the workspace, or nil if none was taken yet.
	DiffGet(ctx context.Context, sessionID string) (*workspacefile.Diff, error)
}

// files are the routes of the files of sessions, or of bundles.
type files struct {
	*Server
	id    func(echo.Context) (string, error) // the id of the session or bundle
	store fileStore
}

// bundleFiles implements fileStore for the files of bundles.
type bundleFiles struct{ bundleStore }

func (s bundleFiles) FileList(ctx context.Context, bundleID, prefix string, limit int, cursor string) (items []workspacefile.Info, nextCursor string, err error) {
	return s.BundleFileList(ctx, bundleID, prefix, limit, cursor)
}

func (s bundleFiles) FileGet(ctx context.Context, bundleID, path string) (workspacefile.Content, error) {
	return s.BundleFileGet(ctx, bundleID, path)
}

func (s bundleFiles) DiffGet(ctx context.Context, bundleID string) (*workspacefile.Diff, error) {
	return s.BundleDiffGet(ctx, bundleID)
}

// fileTypes lists types by extension that are more specific than the detected ones. The machine's
// own table is not used, so that responses are the same everywhere.
var fileTypes = map[string]string{
	".css": "text/css; charset=utf-8", ".csv": "text/csv; charset=utf-8", ".gif": "image/gif",
	".htm": "text/html; charset=utf-8", ".html": "text/html; charset=utf-8", ".jpeg": "image/jpeg", ".jpg": "image/jpeg",
	".js": "text/javascript; charset=utf-8", ".json": "application/json", ".jsonl": "application/x-ndjson",
	".md": "text/markdown; charset=utf-8", ".mjs": "text/javascript; charset=utf-8", ".pdf": "application/pdf",
	".png": "image/png", ".svg": "image/svg+xml", ".webp": "image/webp", ".xml": "application/xml",
}

// shown lists the types that a browser may display. None of them can run code.
var shown = []string{"image/png", "image/jpeg", "image/gif", "image/webp", "text/plain; charset=utf-8"}

// fileType returns the media type of a file, determined by its name or otherwise by its bytes.
func fileType(name string, data []byte) string {
	byName, known := fileTypes[strings.ToLower(path.Ext(name))]
	sniffed := http.DetectContentType(data)
	switch {
	case strings.HasPrefix(byName, "image/") && byName != "image/svg+xml" && byName != sniffed:
		// A file that is named like an image but is not one is not displayed.
		return echo.MIMEOctetStream
	case known:
		return byName
	case strings.HasPrefix(sniffed, "text/") && utf8.Valid(data):
		return "text/plain; charset=utf-8" // including text that looks like HTML but has another name
	case strings.HasPrefix(sniffed, "text/"):
		return echo.MIMEOctetStream
	}
	return sniffed
}

func (s *files) fileList(c echo.Context) error {
	id, err := s.id(c)
	if err != nil {
		return err
	}
	limit, cursor, err := listQuery(c)
	if err != nil {
		return err
	}
	prefix, err := filter(c, "prefix")
	if err != nil {
		return err
	}
	items, next, err := s.store.FileList(c.Request().Context(), id, prefix, limit, cursor)
	if err != nil {
		return err
	}
	masker, err := s.cfg.Masks.Masker(c.Request().Context())
	if err != nil {
		return err
	}
	for i := range items {
		items[i].Path = masker.Text(items[i].Path)
	}
	return c.JSON(http.StatusOK, newPage(resource.Files(items), next))
}

// filePath returns the path of the file in the request's path, where its slashes may be
// percent-encoded.
func filePath(c echo.Context) (string, error) {
	// Echo decodes a parameter only if the request uses an encoding that Go would not choose.
	_, rest, _ := strings.Cut(c.Request().URL.EscapedPath(), "/files/")
	name, err := url.PathUnescape(rest)
	if err != nil || !utf8.ValidString(name) || strings.ContainsRune(name, 0) {
		return "", invalid("path", "must be UTF-8 without the character U+0000")
	}
	if len(name) > workspacefile.MaxPath {
		return "", invalid("path", "is %d bytes long; at most %d are allowed", len(name), workspacefile.MaxPath)
	}
	return name, nil
}

func (s *files) fileGet(c echo.Context) error {
	id, err := s.id(c)
	if err != nil {
		return err
	}
	name, err := filePath(c)
	if err != nil {
		return err
	}
	masker, err := s.cfg.Masks.Masker(c.Request().Context())
	if err != nil {
		return err
	}
	f, err := s.store.FileGet(c.Request().Context(), id, name)
	if failure.CodeOf(err) == failure.NoFile && masker != nil && strings.Contains(name, "[redacted ") {
		f, err = s.maskedFile(c.Request().Context(), id, name, masker)
	}
	if err != nil {
		return err
	}
	if err := unsaved(f.Info); err != nil {
		return err
	}
	if masked := masker.Bytes(f.Data); len(masked) != len(f.Data) || !bytes.Equal(masked, f.Data) {
		sum := sha256.Sum256(masked)
		f.Data, f.SHA256 = masked, hex.EncodeToString(sum[:])
		f.ModifiedAt = time.Time{} // the masked content also changes with the secrets
	}
	kind := fileType(f.Path, f.Data)
	disposition := "attachment"
	if slices.Contains(shown, kind) && c.QueryParam("download") == "" {
		disposition = "inline"
	}
	h := c.Response().Header()
	h.Set(echo.HeaderContentType, kind)
	h.Set(echo.HeaderContentDisposition, mime.FormatMediaType(disposition, map[string]string{"filename": masker.Text(path.Base(f.Path))}))
	h.Set("ETag", fmt.Sprintf("%q", f.SHA256))
	h.Set("Cache-Control", "private, no-cache")
	h.Set(echo.HeaderContentSecurityPolicy, "default-src 'none'; sandbox")
	http.ServeContent(c.Response(), c.Request(), "", f.ModifiedAt, bytes.NewReader(f.Data))
	return nil
}

// maskedFile finds a file by its masked path in lists.
func (s *files) maskedFile(ctx context.Context, id, name string, masker *secret.Masker) (workspacefile.Content, error) {
	prefix, _, _ := strings.Cut(name, "[redacted ")
	for cursor := ""; ; {
		items, next, err := s.store.FileList(ctx, id, prefix, maxLimit, cursor)
		if err != nil {
			return workspacefile.Content{}, err
		}
		for _, item := range items {
			if masker.Text(item.Path) == name {
				return s.store.FileGet(ctx, id, item.Path)
			}
		}
		if cursor = next; cursor == "" {
			return workspacefile.Content{}, failure.Errorf(failure.NoFile, "there is no file %s", name)
		}
	}
}

// unsaved returns the reason why the content of a file cannot be read, or nil.
func unsaved(f workspacefile.Info) error {
	switch f.Unsaved {
	case "":
		return nil
	case workspacefile.UnsavedTooLarge:
		return failure.Errorf(failure.TooLarge,
			"the file has %d bytes; the content of files over %d bytes is not saved", f.Size, workspacefile.MaxBytes)
	case workspacefile.UnsavedFull:
		return failure.Errorf(failure.NotSaved,
			"the content was not saved: with it the session's files would be more than %d bytes", workspacefile.MaxSavedBytes)
	case workspacefile.UnsavedUnreadable:
	}
	return failure.Errorf(failure.NotSaved, "the content was not saved: the file could not be read in the sandbox")
}

func (s *files) diff(c echo.Context) error {
	id, err := s.id(c)
	if err != nil {
		return err
	}
	d, err := s.maskedDiff(c.Request().Context(), id)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, resource.Diff(d))
}

// maskedDiff returns the masked newest diff of a workspace, or nil if none was taken yet.
func (s *files) maskedDiff(ctx context.Context, id string) (*workspacefile.Diff, error) {
	stored, err := s.store.DiffGet(ctx, id)
	if err != nil || stored == nil {
		return nil, err
	}
	masker, err := s.cfg.Masks.Masker(ctx)
	if err != nil {
		return nil, err
	}
	d := *stored
	d.Patch = masker.Bytes(d.Patch)
	if d.Git != nil {
		git := *d.Git
		git.Branch = masker.Text(git.Branch)
		d.Git = &git
	}
	d.Files = slices.Clone(d.Files)
	for i := range d.Files {
		d.Files[i].Path = masker.Text(d.Files[i].Path)
	}
	return &d, nil
}
