package resource

import (
	"github.com/overwinter-dev/overwinter/internal/bundle"
	"github.com/overwinter-dev/overwinter/internal/manifest"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// BundleJSON is the JSON of a bundle.
type BundleJSON struct {
	ID         string `json:"id"`
	SessionID  string `json:"sessionId"`
	ParentID   string `json:"parentId,omitempty"`
	CreatedAt  Time   `json:"createdAt"`
	Generation int64  `json:"generation"`
	Checkpoint bool   `json:"checkpoint"` // the sandbox kept running
	Verified   bool   `json:"verified"`
	Head       bool   `json:"head"`
	Pinned     bool   `json:"pinned"`
	Size       int64  `json:"size"`
	// Environment describes its files, Context the agent's memory, History the position in the
	// conversation.
	Environment EnvironmentStateJSON `json:"environment_state"`
	Context     *ContextStateJSON    `json:"context_state,omitempty"` // not in lists
	History     HistoryStateJSON     `json:"message_history_state"`
	LastRestore *RestoreJSON         `json:"lastRestore,omitempty"`
}

// EnvironmentStateJSON describes the files of a bundle.
type EnvironmentStateJSON struct {
	SnapshotID string   `json:"snapshotId,omitempty"`
	Available  bool     `json:"available"` // the snapshot is kept
	GitHead    string   `json:"gitHead,omitempty"`
	GitDirty   bool     `json:"gitDirty,omitempty"`
	Entries    int64    `json:"entries"`
	Bytes      int64    `json:"bytes"`
	Digest     string   `json:"digest,omitempty"`
	Unchecked  string   `json:"unchecked,omitempty"` // the reason why there is no digest
	Lost       []string `json:"lost,omitempty"`
}

// ContextStateJSON describes the agent's own files in a bundle.
type ContextStateJSON struct {
	Files []manifest.File `json:"files"`
	Bytes int64           `json:"bytes"`
}

// HistoryStateJSON is the position of a bundle in the conversation.
type HistoryStateJSON struct {
	LastSeq  int64           `json:"lastSeq"`
	PromptID string          `json:"promptId,omitempty"`
	Outcome  session.Outcome `json:"outcome,omitempty"`
}

// RestoreJSON is the newest restore from a bundle.
type RestoreJSON struct {
	At      Time         `json:"at"`
	Receipt *ReceiptJSON `json:"receipt"`
}

// Bundle converts v, with the list of its agent's files.
func Bundle(v bundle.View) BundleJSON {
	out := bundleOf(v)
	context := ContextStateJSON{Files: v.Manifest.AgentFiles}
	for _, f := range v.Manifest.AgentFiles {
		context.Bytes += f.Size
	}
	out.Size += context.Bytes
	out.Context = &context
	return out
}

// Bundles converts a list, without the lists of agents' files.
func Bundles(views []bundle.View) []BundleJSON {
	out := make([]BundleJSON, len(views))
	for i, v := range views {
		out[i] = bundleOf(v)
	}
	return out
}

func bundleOf(v bundle.View) BundleJSON {
	out := BundleJSON{
		ID: v.ID, SessionID: v.SessionID, ParentID: v.ParentID, CreatedAt: Time(v.CreatedAt), Generation: v.Generation,
		Checkpoint: v.Checkpoint, Verified: v.Verified, Head: v.Head, Pinned: !v.PinnedAt.IsZero(),
		Environment: EnvironmentStateJSON{SnapshotID: v.SnapshotID, Available: v.HasFiles, Lost: v.Manifest.Lost},
		History:     HistoryStateJSON{LastSeq: v.LastSeq, PromptID: v.PromptID, Outcome: v.Outcome},
	}
	if git := v.Manifest.Git; git != nil {
		out.Environment.GitHead, out.Environment.GitDirty = git.Head, git.DirtyHash != ""
	}
	if tree := v.Manifest.Tree; tree != nil {
		e := &out.Environment
		e.Entries, e.Bytes, e.Digest, e.Unchecked = tree.Entries, tree.Bytes, tree.Digest, tree.Unchecked
		out.Size = tree.Bytes
	}
	if v.Receipt != nil {
		out.LastRestore = &RestoreJSON{At: Time(v.RestoredAt), Receipt: Receipt(v.Receipt)}
	}
	return out
}
