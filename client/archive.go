package client

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/google/uuid"
)

// The states of a BundleArchive.
const (
	ArchivePending = "pending"
	ArchiveReady   = "ready"
	ArchiveFailed  = "failed"
)

// BundleArchive is the state of the portable archive of a bundle.
type BundleArchive struct {
	BundleID  string `json:"bundleId"`
	Status    string `json:"status"`           // pending, ready or failed
	Reason    string `json:"reason,omitempty"` // reason of the failure
	Bytes     int64  `json:"bytes,omitempty"`
	ExpiresAt *Time  `json:"expiresAt,omitempty"`
}

// BundleArchive requests the portable archive of a bundle and returns its state. Call it again
// until the state is not pending.
func (c *Client) BundleArchive(ctx context.Context, bundleID string) (a BundleArchive, err error) {
	_, err = c.call(ctx, http.MethodPost, "/api/bundles/"+url.PathEscape(bundleID)+"/export", struct{}{}, &a)
	return a, err
}

// BundleExport writes the portable archive of a bundle to w. The archive must be ready. After an
// error the content of w is not usable.
func (c *Client) BundleExport(ctx context.Context, bundleID string, w io.Writer) error {
	req, err := c.request(ctx, http.MethodGet, "/api/bundles/"+url.PathEscape(bundleID)+"/export", nil)
	if err != nil {
		return err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode >= http.StatusBadRequest {
		return readError(resp)
	}
	if _, err := io.Copy(w, resp.Body); err != nil {
		return fmt.Errorf("read archive: %w", err)
	}
	return nil
}

// Import describes how to continue a session from an archive.
type Import struct {
	Title   string // default: the title in the archive
	Profile string // default: none
}

// BundleImport creates a session from a portable archive of the given size. A repeated call with
// the same key within 24 hours returns the first session. If key is empty, a new key is generated.
// The archive is sent only once.
func (c *Client) BundleImport(ctx context.Context, archive io.Reader, size int64, i Import, key string) (s Session, err error) {
	query := url.Values{}
	if i.Title != "" {
		query.Set("title", i.Title)
	}
	if i.Profile != "" {
		query.Set("profile", i.Profile)
	}
	path := "/api/bundles/import"
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	req, err := c.request(ctx, http.MethodPost, path, nil)
	if err != nil {
		return s, err
	}
	if key == "" {
		key = uuid.NewString()
	}
	req.Body, req.ContentLength = io.NopCloser(archive), size
	req.Header.Set("Content-Type", "application/gzip")
	req.Header.Set("Idempotency-Key", key)
	resp, err := c.http.Do(req)
	if err != nil {
		return s, err
	}
	defer resp.Body.Close()
	if resp.StatusCode >= http.StatusBadRequest {
		return s, readError(resp)
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxAnswer)).Decode(&s); err != nil {
		return s, fmt.Errorf("%s does not answer like overwinter: %w", c.base, err)
	}
	return s, nil
}
