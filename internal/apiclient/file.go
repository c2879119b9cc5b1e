package apiclient

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"github.com/overwinter-dev/overwinter/internal/wire"
)

// FileList returns the files of a session's workspace whose paths begin with prefix, by path, over as
// many pages as it takes.
func (c *Client) FileList(ctx context.Context, sessionID, prefix string) ([]wire.FileJSON, error) {
	out := []wire.FileJSON{}
	query := url.Values{"limit": {strconv.Itoa(pageSize)}}
	if prefix != "" {
		query.Set("prefix", prefix)
	}
	for {
		var page struct {
			Items      []wire.FileJSON `json:"items"`
			NextCursor string          `json:"nextCursor"`
		}
		if _, err := c.call(ctx, http.MethodGet, sessionPath(sessionID)+"/files?"+query.Encode(), nil, &page); err != nil {
			return nil, err
		}
		out = append(out, page.Items...)
		if page.NextCursor == "" {
			return out, nil
		}
		query.Set("cursor", page.NextCursor)
	}
}

// FileGet reads a file of a session's workspace.
func (c *Client) FileGet(ctx context.Context, sessionID, path string) ([]byte, error) {
	var data []byte
	_, err := c.call(ctx, http.MethodGet, sessionPath(sessionID)+"/files/"+url.PathEscape(path), nil, &data)
	return data, err
}

// Diff returns how a session's workspace differs from its beginning.
func (c *Client) Diff(ctx context.Context, sessionID string) (wire.DiffJSON, error) {
	var d wire.DiffJSON
	_, err := c.call(ctx, http.MethodGet, sessionPath(sessionID)+"/diff", nil, &d)
	return d, err
}
