package session

import (
	"time"

	"github.com/overwinter-dev/overwinter/internal/manifest"
)

// Bundle is what a session wakes from: immutable, committed whole or not at all.
type Bundle struct {
	ID         string
	SessionID  string
	ParentID   string // the bundle before it
	Generation int64  // the sandbox it was taken from
	SnapshotID string // image at the provider; empty when only transcripts are left
	Manifest   manifest.Manifest
	Checkpoint bool // the sandbox kept running after it, so another bundle of its generation follows
	Verified   bool // the snapshot resolved at the provider when the bundle was committed
	CreatedAt  time.Time
}

// BundleRef names a bundle and where its files are.
type BundleRef struct {
	ID         string
	SnapshotID string
}
