package workspacefile

import "time"

// Bounds of what is kept of a workspace.
const (
	// MaxWatched is how many files of a workspace are listed; others are not seen.
	MaxWatched = 20_000
	// MaxBytes is the largest file whose content is kept.
	MaxBytes = 1 << 20
	// MaxSavedBytes bounds the content that is kept of all files of a session together.
	MaxSavedBytes = 64 << 20
	// MaxPath bounds a path; a file with a longer one is not seen.
	MaxPath = 1024
	// MaxPatchBytes bounds the text of a diff; the rest is left out.
	MaxPatchBytes = 1 << 20
)

// AttachmentDir is where the files that prompts come with are in a workspace. They are not part of its files and of its diff.
const AttachmentDir = ".overwinter/attachments"

// ChangeKind is what happened to a file of the workspace.
type ChangeKind string

// The changes.
const (
	Created  ChangeKind = "created"
	Modified ChangeKind = "modified"
	Deleted  ChangeKind = "deleted"
)

// Unsaved is why the content of a file is not kept; empty when it is.
type Unsaved string

// The reasons.
const (
	// UnsavedTooLarge: it is larger than MaxBytes.
	UnsavedTooLarge Unsaved = "too_large"
	// UnsavedFull: with it the session's files would be more than MaxSavedBytes.
	UnsavedFull Unsaved = "session_full"
	// UnsavedUnreadable: the runner could not read it.
	UnsavedUnreadable Unsaved = "unreadable"
)

// Position is how much of the history of a workspace is stored. A runner numbers the changes
// that it finds from 1 in a lineage, a name that it makes up whenever its state of the workspace
// does not continue what is stored.
type Position struct {
	Session string `json:"session"`
	Lineage string `json:"lineage,omitempty"` // empty: nothing has been stored
	Seq     int64  `json:"seq,omitempty"`
	// Base is the commit that diffs are taken against; empty when the workspace
	// was not a repository, or had no commit, at the session's beginning.
	Base string `json:"base,omitempty"`
	// DiffKey names the newest diff that is stored.
	DiffKey string `json:"diffKey,omitempty"`
}

// Info describes a file of the workspace.
type Info struct {
	Path string // relative to the workspace, with slashes
	Size int64
	// SHA256 of the content as hexadecimal digits; empty where it was not read to its end.
	SHA256     string
	Mode       uint32 // permission bits
	ModifiedAt time.Time
	Unsaved    Unsaved
}

// Saved reports whether the content is kept.
func (f Info) Saved() bool { return f.Unsaved == "" }

// Known is what a runner must know of a file that is stored.
type Known struct {
	Path    string  `json:"path"`
	Size    int64   `json:"size"`
	SHA256  string  `json:"sha256,omitempty"`
	Mode    uint32  `json:"mode"`
	Unsaved Unsaved `json:"unsaved,omitempty"`
}

// Content is a file with its content, which is nil where it is not saved.
type Content struct {
	Info
	Data []byte
}

// Change is one change as a runner reports it.
type Change struct {
	Content
	Seq int64
	// Kind as the runner sees it. A file whose creation was reported and not stored is reported
	// again as modified: the store, which knows better, says that it is created.
	Kind ChangeKind `json:"Change"` // the key that runners of every release write
	// Initial: the file was there before the session's agent was, which is not an event.
	Initial bool
}

// Batch is what a worker has learned of a workspace, written together or
// not at all. What is stored already, by lineage and seq, is skipped.
type Batch struct {
	SessionID  string
	Generation int64
	// RunID and Token are of the run that found the changes; both are empty where
	// they are found between runs, and then the generation alone fences.
	RunID, Token string

	Lineage string
	Base    string
	Changes []Change // seq rises
	// BoundedSeq is the number of the runner's report that the workspace has more than
	// MaxWatched; 0 if there is none.
	BoundedSeq int64
	Diff       *Diff // nil when it has not changed
	// Mask masks the paths that events contain. Default: the paths as they are.
	Mask func(string) string
	// Budget bounds the events, and is charged for those that are stored. Nil: they are not bounded.
	Budget *Budget
}

// Budget is what the changes of a workspace may still add to the log in a turn, or in a seal: a runner reports as many
// changes as it likes. The changes themselves are stored in any case.
type Budget struct {
	Bytes, Events int64 // left for file events
	// Full: a change had no event, and an error event has said so.
	Full bool
	// TooLarge: an error event has said that the workspace has too many files.
	TooLarge bool
}

// None reports whether no event may be added.
func (b *Budget) None() bool { return b.Bytes <= 0 || b.Events <= 0 }

// Logged is what the log has of the changes of a workspace in one run.
type Logged struct {
	Bytes, Events int64 // of file events
	Full          bool  // an error event has said that events are left out
	TooLarge      bool  // an error event has said that the workspace has too many files
}

// Diff is how a workspace differs from the session's beginning.
type Diff struct {
	Key       string  `json:"key"` // names what was compared
	Base      string  `json:"base,omitempty"`
	Files     []Delta `json:"files"`
	Additions int64   `json:"additions"`
	Deletions int64   `json:"deletions"`
	// FilesChanged counts all files, also those beyond the bound of Files.
	FilesChanged int       `json:"filesChanged"`
	Git          *GitState `json:"git,omitempty"` // nil where the workspace is not a repository
	Patch        []byte    `json:"patch,omitempty"`
	// Truncated: the patch, or the list of files, is truncated at its bound.
	Truncated bool      `json:"truncated,omitempty"`
	At        time.Time `json:"at"`
}

// Delta is how one file differs. Binary files have no lines to count.
type Delta struct {
	Path      string     `json:"path"`
	Change    ChangeKind `json:"change"`
	Additions int64      `json:"additions"`
	Deletions int64      `json:"deletions"`
	Binary    bool       `json:"binary,omitempty"`
}

// GitState is where a repository stands.
type GitState struct {
	Branch string `json:"branch,omitempty"` // empty when the head is detached
	Head   string `json:"head,omitempty"`   // empty before the first commit
	Dirty  bool   `json:"dirty"`            // something is not committed
}
