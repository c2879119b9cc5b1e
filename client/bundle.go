package client

import (
	"context"
	"net/http"
	"net/url"
)

// Bundle is a saved state from which a session can be restored.
type Bundle struct {
	ID         string `json:"id"`
	SessionID  string `json:"sessionId"`
	ParentID   string `json:"parentId,omitempty"`
	CreatedAt  Time   `json:"createdAt"`
	Generation int64  `json:"generation"`
	Checkpoint bool   `json:"checkpoint"` // the sandbox kept running
	Verified   bool   `json:"verified"`
	Head       bool   `json:"head"` // the session wakes from it
	Pinned     bool   `json:"pinned"`
	Size       int64  `json:"size"`
	// Environment describes the files, Context the agent's own memory, which lists omit, and
	// History the end of the conversation.
	Environment BundleEnvironment `json:"environment_state"`
	Context     *BundleContext    `json:"context_state,omitempty"`
	History     BundleHistory     `json:"message_history_state"`
	LastRestore *BundleRestore    `json:"lastRestore,omitempty"`
}

// BundleEnvironment describes the files of a bundle.
type BundleEnvironment struct {
	SnapshotID string   `json:"snapshotId,omitempty"`
	Available  bool     `json:"available"` // the snapshot is kept
	GitHead    string   `json:"gitHead,omitempty"`
	GitDirty   bool     `json:"gitDirty,omitempty"`
	Entries    int64    `json:"entries"`
	Bytes      int64    `json:"bytes"`
	Digest     string   `json:"digest,omitempty"`
	Unchecked  string   `json:"unchecked,omitempty"` // reason for a missing digest
	Lost       []string `json:"lost,omitempty"`
}

// BundleContext describes the agent's own files in a bundle.
type BundleContext struct {
	Files []BundleFile `json:"files"`
	Bytes int64        `json:"bytes"`
}

// BundleFile is one of the agent's own files.
type BundleFile struct {
	Path   string `json:"path"` // absolute, in the sandbox
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}

// BundleHistory is the point in the conversation at which a bundle was saved.
type BundleHistory struct {
	LastSeq  int64  `json:"lastSeq"`
	PromptID string `json:"promptId,omitempty"`
	Outcome  string `json:"outcome,omitempty"` // completed, failed, cancelled or unknown
}

// BundleRestore is the newest restore from a bundle.
type BundleRestore struct {
	At      Time     `json:"at"`
	Receipt *Receipt `json:"receipt"`
}

// BundleList returns the bundles of a session, newest first. It returns at most limit bundles, or
// all if limit is 0.
func (c *Client) BundleList(ctx context.Context, sessionID string, limit int) (Page[Bundle], error) {
	return list[Bundle](ctx, c, sessionPath(sessionID)+"/bundles", nil, limit)
}

// BundleGet returns a bundle with the list of its agent's files.
func (c *Client) BundleGet(ctx context.Context, bundleID string) (b Bundle, err error) {
	_, err = c.call(ctx, http.MethodGet, "/api/bundles/"+url.PathEscape(bundleID), nil, &b)
	return b, err
}

// BundlePin pins a bundle, so that it is kept, or unpins it.
func (c *Client) BundlePin(ctx context.Context, bundleID string, pinned bool) (b Bundle, err error) {
	verb := "/unpin"
	if pinned {
		verb = "/pin"
	}
	_, err = c.call(ctx, http.MethodPost, "/api/bundles/"+url.PathEscape(bundleID)+verb, struct{}{}, &b)
	return b, err
}

// BundleFileList returns the files of a bundle whose paths begin with prefix, sorted by path. It
// reads all pages.
func (c *Client) BundleFileList(ctx context.Context, bundleID, prefix string) (Page[WorkspaceFile], error) {
	return list[WorkspaceFile](ctx, c, "/api/bundles/"+url.PathEscape(bundleID)+"/files", prefixQuery(prefix), 0)
}

// BundleFileGet reads a file of a bundle.
func (c *Client) BundleFileGet(ctx context.Context, bundleID, path string) (data []byte, err error) {
	_, err = c.call(ctx, http.MethodGet, "/api/bundles/"+url.PathEscape(bundleID)+"/files/"+url.PathEscape(path), nil, &data)
	return data, err
}

// BundleDiff returns the difference between the workspace of a bundle and the initial workspace of
// its session.
func (c *Client) BundleDiff(ctx context.Context, bundleID string) (d Diff, err error) {
	_, err = c.call(ctx, http.MethodGet, "/api/bundles/"+url.PathEscape(bundleID)+"/diff", nil, &d)
	return d, err
}
