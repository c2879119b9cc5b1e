package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
)

// Page is one page of a list.
type Page[T any] struct {
	Items []T `json:"items"`
	// NextCursor is the cursor of the next page; nil on the last page.
	NextCursor *string `json:"nextCursor"`
}

// pageSize is the maximum number of items in a page.
const pageSize = 200

// list reads the pages of a list, up to limit items; 0 means all items.
func list[T any](ctx context.Context, c *Client, path string, query url.Values, limit int) (Page[T], error) {
	whole := Page[T]{Items: []T{}}
	if query == nil {
		query = url.Values{}
	}
	for {
		size := pageSize
		if limit > 0 {
			size = min(size, limit-len(whole.Items))
		}
		query.Set("limit", strconv.Itoa(size))
		var page Page[T]
		if _, err := c.call(ctx, http.MethodGet, path+"?"+query.Encode(), nil, &page); err != nil {
			return Page[T]{}, err
		}
		whole.Items, whole.NextCursor = append(whole.Items, page.Items...), page.NextCursor
		if page.NextCursor == nil || *page.NextCursor == "" || limit > 0 && len(whole.Items) >= limit {
			return whole, nil
		}
		query.Set("cursor", *page.NextCursor)
	}
}
