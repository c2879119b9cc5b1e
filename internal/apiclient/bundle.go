package apiclient

import (
	"context"
	"net/http"
	"net/url"

	"github.com/overwinter-dev/overwinter/internal/resource"
)

// BundleList returns the bundles of a session, newest first: all of them, or as many as limit.
func (c *Client) BundleList(ctx context.Context, sessionID string, limit int) (Page[resource.BundleJSON], error) {
	return list[resource.BundleJSON](ctx, c, sessionPath(sessionID)+"/bundles", nil, limit)
}

// BundlePin has a bundle kept, or no longer.
func (c *Client) BundlePin(ctx context.Context, bundleID string, pinned bool) (b resource.BundleJSON, err error) {
	verb := "/unpin"
	if pinned {
		verb = "/pin"
	}
	_, err = c.call(ctx, http.MethodPost, "/api/bundles/"+url.PathEscape(bundleID)+verb, struct{}{}, &b)
	return b, err
}
