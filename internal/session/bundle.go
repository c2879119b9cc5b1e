package session

import "time"

// Bundle is what a session wakes from: immutable, committed whole or not at all.
type Bundle struct {
	ID         string
	SessionID  string
	ParentID   string // the bundle before it
	Generation int64  // the sandbox it was taken from
	SnapshotID string // image at the provider; empty when only transcripts are left
	Manifest   Manifest
	Checkpoint bool // the sandbox worked on behind it, so that its generation has another one to come
	Verified   bool // the snapshot resolved at the provider when the bundle was committed
	CreatedAt  time.Time
}

// Manifest lists what a restore must bring back.
type Manifest struct {
	// AgentFiles are the agent's own files: its memory.
	AgentFiles []ManifestFile `json:"agentFiles"`
	// Git is the state of the workspace's repository; nil where there is none.
	Git *ManifestGit `json:"git,omitempty"`
	// LastSeq is the newest event of the session when the manifest was taken.
	LastSeq int64 `json:"lastSeq"`
	// Runner is the build of the runner that is in the sandbox; empty where it is not known.
	Runner string `json:"runner,omitempty"`
	// Lost says what the bundle is known to lack, in words for people, such as changes made after
	// the snapshot that it fell back to.
	Lost []string `json:"lost,omitempty"`
}

// ManifestFile is one file with what proves it is the same.
type ManifestFile struct {
	Path   string `json:"path"` // absolute, in the sandbox
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}

// ManifestGit is the state of a repository in the workspace.
type ManifestGit struct {
	Head      string `json:"head"`
	DirtyHash string `json:"dirtyHash"` // hash over the uncommitted changes; empty when clean
}

// TranscriptSegment is a piece of one of the agent's native transcript files.
type TranscriptSegment struct {
	SessionID string
	RunID     string
	Path      string // absolute, in the sandbox
	Version   int64  // rises when the file was rewritten rather than appended to
	Offset    int64
	Data      []byte
}

// TranscriptFile is a native transcript, whole.
type TranscriptFile struct {
	Path    string
	Version int64
	Data    []byte
}

// TranscriptPosition says how much of a transcript file is stored.
type TranscriptPosition struct {
	Path    string `json:"path"`
	Version int64  `json:"version"`
	Size    int64  `json:"size"`
}
