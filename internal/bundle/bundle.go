// Package bundle has the records of bundles, from which sessions wake, and of the archives that take a bundle to
// another provider or installation.
package bundle

import (
	"time"

	"github.com/overwinter-dev/overwinter/internal/manifest"
	"github.com/overwinter-dev/overwinter/internal/receipt"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// Bundle is a saved state that a session wakes from: immutable, committed whole or not at all.
type Bundle struct {
	ID         string
	SessionID  string
	ParentID   string // the bundle before it
	Generation int64  // the sandbox it was taken from
	SnapshotID string // image at the provider; empty when only transcripts are left
	ArchiveID  string // archive that has its files where there is no snapshot; empty for none
	Manifest   manifest.Manifest
	Checkpoint bool // the sandbox kept running after it, so another bundle of its generation follows
	Verified   bool // the snapshot resolved at the provider when the bundle was committed
	CreatedAt  time.Time
}

// MaxPins bounds the bundles of one session that are pinned.
const MaxPins = 100

// RunOpen is the outcome in a View of a run that has not ended: it waits for an answer to a question.
const RunOpen session.Outcome = "open"

// View is a bundle as clients see it.
type View struct {
	Bundle
	LastSeq  int64           // newest event of the session that it has
	PromptID string          // newest prompt that the agent's memory has; empty for none
	Outcome  session.Outcome // of that prompt's run; empty where there is none
	Head     bool            // the session wakes from it
	HasFiles bool            // its snapshot is kept, or it has an archive
	PinnedAt time.Time
	// Receipt is of the newest restore from it, at RestoredAt; nil while there was none.
	Receipt    *receipt.Receipt
	RestoredAt time.Time
}

// RevertDue is a revert with files that a session is restored for.
type RevertDue struct {
	CommandID  string
	Bundle     Bundle // to restore
	Impossible string // why it cannot be carried out; empty: it may be
}
