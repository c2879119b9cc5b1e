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

// BundleArchive is how far the portable archive of a bundle is.
type BundleArchive struct {
	BundleID  string `json:"bundleId"`
	Status    string `json:"status"`           // pending, ready or failed
	Reason    string `json:"reason,omitempty"` // why it failed
	Bytes     int64  `json:"bytes,omitempty"`
	ExpiresAt *Time  `json:"expiresAt,omitempty"`
}

// BundleArchive has the portable archive of a bundle prepared, and returns how far it is. Call it again until it is not pending.
func (c *Client) BundleArchive(ctx context.Context, bundleID string) (a BundleArchive, err error) {
	_, err = c.call(ctx, http.MethodPost, "/api/bundles/"+url.PathEscape(bundleID)+"/export", struct{}{}, &a)
	return a, err
}

// BundleExport writes the portable archive of a bundle, which is prepared, to w. After an error the
// content of w is not usable.
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

// Import says how a session is continued from an archive.
type Import struct {
	Title   string // empty: that in the archive
	Profile string // empty: none
}

// BundleImport creates a session from a portable archive of some size. The same key again within 24 hours returns the first session; an
// empty key is a new one. The archive is sent once.
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
