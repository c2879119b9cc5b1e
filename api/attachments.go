package api

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"mime"
	"net/http"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/overwinter-dev/overwinter/internal/attachment"
)

// attachmentStore stores data of sessions in addition to their events.
type attachmentStore interface {
	// AttachmentGet returns an attachment with its content. Error: attachment_not_found.
	AttachmentGet(ctx context.Context, sessionID, id string) (attachment.Attachment, error)
}

// attachments are the routes of attachments.
type attachments struct {
	*Server
	store attachmentStore
}

var attachmentID = regexp.MustCompile(`^att_[0-9a-f]{32}$`)

// pictures lists the media types of attachments that a browser displays inline.
var pictures = []string{"image/png", "image/jpeg", "image/gif", "image/webp"}

func (s *attachments) attachmentGet(c echo.Context) error {
	id, err := sessionID(c)
	if err != nil {
		return err
	}
	name := c.Param("attachmentId")
	if !attachmentID.MatchString(name) {
		return invalid("attachmentId", "must be att_ and 32 hexadecimal digits")
	}
	a, err := s.store.AttachmentGet(c.Request().Context(), id, name)
	if err != nil {
		return err
	}
	disposition := "attachment"
	if slices.Contains(pictures, a.MediaType) && c.QueryParam("download") == "" {
		disposition = "inline"
	}
	file := cmp.Or(a.Name, a.ID+extension(a.MediaType))
	masker, err := s.cfg.Masks.Masker(c.Request().Context())
	if err != nil {
		return err
	}
	etag := a.ID
	if masked := masker.Bytes(a.Data); !bytes.Equal(masked, a.Data) {
		sum := sha256.Sum256(masked)
		a.Data, etag = masked, hex.EncodeToString(sum[:])
	}
	h := c.Response().Header()
	h.Set(echo.HeaderContentType, cmp.Or(a.MediaType, echo.MIMEOctetStream))
	h.Set(echo.HeaderContentDisposition, mime.FormatMediaType(disposition, map[string]string{"filename": masker.Text(path.Base(file))}))
	h.Set("ETag", fmt.Sprintf("%q", etag))
	h.Set("Cache-Control", "private, no-cache")
	h.Set(echo.HeaderContentSecurityPolicy, "default-src 'none'; sandbox")
	http.ServeContent(c.Response(), c.Request(), "", time.Time{}, bytes.NewReader(a.Data))
	return nil
}

// extension returns the file extension for an image without one.
func extension(mediaType string) string {
	kind, ok := strings.CutPrefix(mediaType, "image/")
	if !ok || !slices.Contains(pictures, mediaType) {
		return ""
	}
	return "." + kind
}
