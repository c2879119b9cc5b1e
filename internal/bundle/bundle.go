// Package bundle has the records of bundles, from which sessions wake, and of the archives that take a bundle to
// another provider or installation.
package bundle

import (
	"time"

	"github.com/overwinter-dev/overwinter/internal/manifest"
	"github.com/overwinter-dev/overwinter/internal/receipt"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// Bundle is a restore point of a session: immutable, committed completely or not at all.
type Bundle struct {
	ID         string
	SessionID  string
	ParentID   string // the bundle before it
	Generation int64  // the sandbox it was taken from
	SnapshotID string // image at the provider; empty if only transcripts were left
	ArchiveID  string // archive with its files if there is no snapshot; empty for none
	Manifest   manifest.Manifest
	Checkpoint bool // the sandbox kept running after it, so another bundle of its generation follows
	Verified   bool // the snapshot resolved at the provider when the bundle was committed
	CreatedAt  time.Time
}

// MaxPins bounds the pinned bundles of one session.
const MaxPins = 100

// RunOpen is the outcome in a View of a run that waits for the answer to a question.
const RunOpen session.Outcome = "open"

// View is a bundle as clients see it.
type View struct {
	Bundle
	LastSeq  int64           // newest event of the session in the bundle
	PromptID string          // newest prompt in the agent's memory; empty for none
	Outcome  session.Outcome // of that prompt's run; empty without one
	Head     bool            // the session wakes from it
	HasFiles bool            // its snapshot is kept, or it has an archive
	PinnedAt time.Time
	// Receipt is the receipt of the newest restore from it, at RestoredAt; nil if there was none.
	Receipt    *receipt.Receipt
	RestoredAt time.Time
}

// RevertDue is a revert with files for which a session is restored.
type RevertDue struct {
	CommandID  string
	Bundle     Bundle // to restore
	Impossible string // the reason why it cannot be carried out; empty if it can
}
