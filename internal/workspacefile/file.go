package workspacefile

import "time"

// Bounds of the stored data of a workspace.
const (
	// MaxWatched is the maximum number of listed files of a workspace; others are not tracked.
	MaxWatched = 20_000
	// MaxBytes is the largest file whose content is kept.
	MaxBytes = 1 << 20
	// MaxSavedBytes bounds the total stored content of a session's files.
	MaxSavedBytes = 64 << 20
	// MaxPath bounds a path; a file with a longer one is not tracked.
	MaxPath = 1024
	// MaxPatchBytes bounds the text of a diff; the rest is omitted.
	MaxPatchBytes = 1 << 20
)

// AttachmentDir is the directory of the files of prompts in a workspace. They are not part of its
// files and its diff.
const AttachmentDir = ".overwinter/attachments"

// ChangeKind is the kind of a change of a file.
type ChangeKind string

// The changes.
const (
	Created  ChangeKind = "created"
	Modified ChangeKind = "modified"
	Deleted  ChangeKind = "deleted"
)

// Unsaved is the reason why the content of a file is not kept; empty if it is.
type Unsaved string

// The reasons.
const (
	// UnsavedTooLarge: it is larger than MaxBytes.
	UnsavedTooLarge Unsaved = "too_large"
	// UnsavedFull: it would exceed MaxSavedBytes of the session.
	UnsavedFull Unsaved = "session_full"
	// UnsavedUnreadable: the runner could not read it.
	UnsavedUnreadable Unsaved = "unreadable"
)

// Position is the end of the stored changes of a workspace. A runner numbers the changes from 1
// within a lineage. It starts a new lineage, with a random name, whenever its state of the
// workspace does not continue the stored one.
type Position struct {
	Session string `json:"session"`
	Lineage string `json:"lineage,omitempty"` // empty: nothing has been stored
	Seq     int64  `json:"seq,omitempty"`
	// Base is the commit that diffs are computed against; empty if the workspace was not a
	// repository, or had no commit, at the session's beginning.
	Base string `json:"base,omitempty"`
	// DiffKey names the newest diff that is stored.
	DiffKey string `json:"diffKey,omitempty"`
}

// Info describes a file of the workspace.
type Info struct {
	Path string // relative to the workspace, with slashes
	Size int64
	// SHA256 of the content as hexadecimal digits; empty if it was not read to its end.
	SHA256     string
	Mode       uint32 // permission bits
	ModifiedAt time.Time
	Unsaved    Unsaved
}

// Saved reports whether the content is kept.
func (f Info) Saved() bool { return f.Unsaved == "" }

// Known is a stored file as a runner needs it.
type Known struct {
	Path    string  `json:"path"`
	Size    int64   `json:"size"`
	SHA256  string  `json:"sha256,omitempty"`
	Mode    uint32  `json:"mode"`
	Unsaved Unsaved `json:"unsaved,omitempty"`
}

// Content is a file with its content, which is nil if it is not saved.
type Content struct {
	Info
	Data []byte
}

// Change is one change that a runner reports.
type Change struct {
	Content
	Seq int64
	// Kind is the runner's view. A file whose creation was reported but not stored is reported
	// again as modified; the store corrects the kind to created.
	Kind ChangeKind `json:"Change"` // the key that all releases of the runner write
	// Initial: the file existed before the session's agent started, so it is not an event.
	Initial bool
}

// Batch has the changes that a worker has received, written atomically. Changes that are already
// stored, by lineage and seq, are skipped.
type Batch struct {
	SessionID  string
	Generation int64
	// RunID and Token are those of the run that found the changes. Both are empty for changes
	// between runs; then only the generation fences the write.
	RunID, Token string

	Lineage string
	Base    string
	Changes []Change // seq rises
	// BoundedSeq is the number of the runner's report that the workspace has more than
	// MaxWatched; 0 if there is none.
	BoundedSeq int64
	Diff       *Diff // nil if it has not changed
	// Mask masks the paths in events. Default: no masking.
	Mask func(string) string
	// Budget bounds the events, and is charged for the stored ones. nil means no bound.
	Budget *Budget
}

// Budget is the remaining amount of events that file changes may add to the log in a turn or a
// seal, because a runner can report any number of changes. The changes themselves are always
// stored.
type Budget struct {
	Bytes, Events int64 // left for file events
	// Full: a change got no event, and an error event has reported that.
	Full bool
	// TooLarge: an error event has reported that the workspace has too many files.
	TooLarge bool
}

// None reports whether no event may be added.
func (b *Budget) None() bool { return b.Bytes <= 0 || b.Events <= 0 }

// Logged counts the log's events about file changes in one run.
type Logged struct {
	Bytes, Events int64 // of file events
	Full          bool  // an error event has reported omitted events
	TooLarge      bool  // an error event has reported that the workspace has too many files
}

// Diff is the difference of a workspace from the session's beginning.
type Diff struct {
	Key       string  `json:"key"` // identifies the compared state
	Base      string  `json:"base,omitempty"`
	Files     []Delta `json:"files"`
	Additions int64   `json:"additions"`
	Deletions int64   `json:"deletions"`
	// FilesChanged counts all files, including those beyond the bound of Files.
	FilesChanged int       `json:"filesChanged"`
	Git          *GitState `json:"git,omitempty"` // nil if the workspace is not a repository
	Patch        []byte    `json:"patch,omitempty"`
	// Truncated: the patch, or the list of files, is truncated at its bound.
	Truncated bool      `json:"truncated,omitempty"`
	At        time.Time `json:"at"`
}

// Delta is the difference of one file. Binary files have no line counts.
type Delta struct {
	Path      string     `json:"path"`
	Change    ChangeKind `json:"change"`
	Additions int64      `json:"additions"`
	Deletions int64      `json:"deletions"`
	Binary    bool       `json:"binary,omitempty"`
}

// GitState is the state of a repository.
type GitState struct {
	Branch string `json:"branch,omitempty"` // empty if the head is detached
	Head   string `json:"head,omitempty"`   // empty before the first commit
	Dirty  bool   `json:"dirty"`            // something is not committed
}
