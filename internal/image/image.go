package image

import "time"

// Intent records that an image is about to be made at the provider, so that an image whose id is
// lost can be found.
type Intent struct {
	ID         string
	SessionID  string // empty for a base image
	Generation int64
	Source     string        // its sandbox, or the name of the base image
	Lifetime   time.Duration // after which the provider deletes it; zero for never
}

// Renewal is a snapshot that bundles still need and that its provider will delete soon.
type Renewal struct {
	SnapshotID string
	SessionID  string
	Generation int64
}

// Exit is the exit image that a provider makes when a sandbox ends.
type Exit struct {
	SandboxID  string
	SessionID  string
	Generation int64
	EndedAt    time.Time
	ImageID    string // empty when there is none
}

// Listed is an image in a provider's list.
type Listed struct {
	ID         string
	SessionID  string // empty for one that is not of a session
	Generation int64
	Exit       bool // made at the end of its sandbox
}

// Counts has the numbers of images to process.
type Counts struct {
	Unneeded int64 // to be deleted
	Failing  int64 // of these, could not be deleted more than three times
	Exits    int64 // of ended sandboxes, still to be found
	Hidden   int64 // may exist at the provider although their id was lost
}
