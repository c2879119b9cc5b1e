package bundle

import (
	"time"

	"github.com/overwinter-dev/overwinter/internal/manifest"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// ArchivePrefix begins the ids of archives.
const ArchivePrefix = "arc_"

// ArchiveState is the state of an archive.
type ArchiveState string

// The states of an archive.
const (
	ArchivePending ArchiveState = "pending" // a worker prepares it, or will
	ArchiveReady   ArchiveState = "ready"
	ArchiveFailed  ArchiveState = "failed"
)

// ArchiveLife is how long an exported archive is kept after its last request.
const ArchiveLife = 24 * time.Hour

// Archive has the files of a bundle and the agent's memory, independent of a provider.
type Archive struct {
	ID       string // empty if the bundle has no files
	BundleID string
	MemoryID string // the session under whose name the agent keeps its memory
	State    ArchiveState
	Reason   string // the reason of a failure
	Bytes    int64
	// ExpiresAt is the time of its deletion; zero if it is kept with its bundle.
	ExpiresAt time.Time
}

// ArchiveWork is an archive that a worker prepares.
type ArchiveWork struct {
	ID      string
	Attempt int64
	Tries   int64 // including this one
	Bundle  Bundle
	Agent   string
}

// Import is a session that is created from an archive.
type Import struct {
	Session session.Session
	// MemoryID is the session under whose name the agent keeps its memory, and Remembers whether there is any.
	MemoryID  string
	Remembers bool
	Place     string // its origin, for people
	Manifest  manifest.Manifest
	PromptID  string // newest prompt in the agent's memory
	Outcome   session.Outcome
	Blocks    []ImportedBlock
}

// ImportedBlock is a block of the conversation of an imported session.
type ImportedBlock struct {
	Conversation string
	ID           string
	JSON         []byte
}
