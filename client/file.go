package client

import (
	"context"
	"net/http"
	"net/url"
)

// WorkspaceFile is a file of a session's workspace.
type WorkspaceFile struct {
	Path       string `json:"path"`
	Size       int64  `json:"size"`
	SHA256     string `json:"sha256,omitempty"`
	Mode       uint32 `json:"mode"`
	ModifiedAt Time   `json:"modifiedAt"`
	Saved      bool   `json:"saved"`
	// Unsaved is why the content is not kept; empty if it is.
	Unsaved string `json:"unsaved,omitempty"`
}

// Diff is how a workspace differs from its beginning. Everything is empty
// while nothing has been compared.
type Diff struct {
	Base         *string     `json:"base"` // the commit that it is compared with; nil without one
	Git          *GitState   `json:"git"`
	Files        []FileDelta `json:"files"`
	FilesChanged int         `json:"filesChanged"`
	Additions    int64       `json:"additions"`
	Deletions    int64       `json:"deletions"`
	Patch        string      `json:"patch"`
	Truncated    bool        `json:"truncated"`
	ComputedAt   *Time       `json:"computedAt"`
}

// FileDelta is how one file differs.
type FileDelta struct {
	Path      string `json:"path"`
	Change    string `json:"change"` // created, modified or deleted
	Additions int64  `json:"additions"`
	Deletions int64  `json:"deletions"`
	Binary    bool   `json:"binary,omitempty"`
}

// GitState is the state of the repository in a workspace.
type GitState struct {
	Branch string `json:"branch,omitempty"` // empty if the head is detached
	Head   string `json:"head,omitempty"`   // empty before the first commit
	Dirty  bool   `json:"dirty"`            // something is not committed
}

// FileList returns the files of a session's workspace whose paths begin with prefix, by path, over as
// many pages as it takes.
func (c *Client) FileList(ctx context.Context, sessionID, prefix string) (Page[WorkspaceFile], error) {
	return list[WorkspaceFile](ctx, c, sessionPath(sessionID)+"/files", prefixQuery(prefix), 0)
}

func prefixQuery(prefix string) url.Values {
	query := url.Values{}
	if prefix != "" {
		query.Set("prefix", prefix)
	}
	return query
}

// FileGet reads a file of a session's workspace.
func (c *Client) FileGet(ctx context.Context, sessionID, path string) (data []byte, err error) {
	_, err = c.call(ctx, http.MethodGet, sessionPath(sessionID)+"/files/"+url.PathEscape(path), nil, &data)
	return data, err
}

// AttachmentGet reads an attachment of a session.
func (c *Client) AttachmentGet(ctx context.Context, sessionID, id string) (data []byte, err error) {
	_, err = c.call(ctx, http.MethodGet, sessionPath(sessionID)+"/attachments/"+url.PathEscape(id), nil, &data)
	return data, err
}

// Diff returns how a session's workspace differs from its beginning.
func (c *Client) Diff(ctx context.Context, sessionID string) (d Diff, err error) {
	_, err = c.call(ctx, http.MethodGet, sessionPath(sessionID)+"/diff", nil, &d)
	return d, err
}
