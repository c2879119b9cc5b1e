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
	// Unsaved is the reason why the content is not stored; empty if it is stored.
	Unsaved string `json:"unsaved,omitempty"`
}

// Diff is the difference between a workspace and its initial state. All fields are empty until a
// diff has been taken.
type Diff struct {
	Base         *string     `json:"base"` // the commit that the workspace is compared with; nil for none
	Git          *GitState   `json:"git"`
	Files        []FileDelta `json:"files"`
	FilesChanged int         `json:"filesChanged"`
	Additions    int64       `json:"additions"`
	Deletions    int64       `json:"deletions"`
	Patch        string      `json:"patch"`
	Truncated    bool        `json:"truncated"`
	ComputedAt   *Time       `json:"computedAt"`
}

// FileDelta is the difference of one file.
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
	Dirty  bool   `json:"dirty"`            // the workspace has uncommitted changes
}

// FileList returns the files of a session's workspace whose paths begin with prefix, sorted by
// path. It reads all pages.
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

// Diff returns the difference between a session's workspace and its initial state.
func (c *Client) Diff(ctx context.Context, sessionID string) (d Diff, err error) {
	_, err = c.call(ctx, http.MethodGet, sessionPath(sessionID)+"/diff", nil, &d)
	return d, err
}
