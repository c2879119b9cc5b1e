package client

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
)

// HistoryEvent is an event in the history of a session's workflow.
type HistoryEvent struct {
	RunID string          `json:"runId"` // run id of the workflow
	Event json.RawMessage `json:"event"` // in the JSON format of Temporal's API
}

// HistoryPage reads a page of the history of a session's workflow, newest run first. It continues
// at the cursor of the previous page.
func (c *Client) HistoryPage(ctx context.Context, sessionID, cursor string) (page Page[HistoryEvent], err error) {
	path := sessionPath(sessionID) + "/history"
	if cursor != "" {
		path += "?cursor=" + url.QueryEscape(cursor)
	}
	_, err = c.call(ctx, http.MethodGet, path, nil, &page)
	return page, err
}
