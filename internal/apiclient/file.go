package apiclient

import (
	"context"
	"net/http"
	"net/url"

	"github.com/overwinter-dev/overwinter/internal/resource"
)

// FileList returns the files of a session's workspace whose paths begin with prefix, by path, over as
// many pages as it takes.
func (c *Client) FileList(ctx context.Context, sessionID, prefix string) (Page[resource.FileJSON], error) {
	query := url.Values{}
	if prefix != "" {
		query.Set("prefix", prefix)
	}
	return list[resource.FileJSON](ctx, c, sessionPath(sessionID)+"/files", query, 0)
}

// FileGet reads a file of a session's workspace.
func (c *Client) FileGet(ctx context.Context, sessionID, path string) ([]byte, error) {
	var data []byte
	_, err := c.call(ctx, http.MethodGet, sessionPath(sessionID)+"/files/"+url.PathEscape(path), nil, &data)
	return data, err
}

// AttachmentGet reads an attachment of a session.
func (c *Client) AttachmentGet(ctx context.Context, sessionID, id string) ([]byte, error) {
	var data []byte
	_, err := c.call(ctx, http.MethodGet, sessionPath(sessionID)+"/attachments/"+url.PathEscape(id), nil, &data)
	return data, err
}

// Diff returns how a session's workspace differs from its beginning.
func (c *Client) Diff(ctx context.Context, sessionID string) (resource.DiffJSON, error) {
	var d resource.DiffJSON
	_, err := c.call(ctx, http.MethodGet, sessionPath(sessionID)+"/diff", nil, &d)
	return d, err
}
