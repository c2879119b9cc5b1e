package image

import "time"

// Intent says that an image is about to be made at the provider, so that one
// whose id is lost is known of.
type Intent struct {
	ID         string
	SessionID  string // empty for a base image
	Generation int64
	Source     string        // the sandbox that it is made of, or the name of the base image
	Lifetime   time.Duration // after which the provider deletes it; zero for never
}

// Renewal is a snapshot that its session still needs and that its provider would
// delete before long.
type Renewal struct {
	SnapshotID string
	SessionID  string
	Generation int64
}

// Exit is the image that a provider makes of a sandbox when that ends.
type Exit struct {
	SandboxID  string
	SessionID  string
	Generation int64
	EndedAt    time.Time
	ImageID    string // empty when there is none
}

// Listed is an image as a provider lists it.
type Listed struct {
	ID         string
	SessionID  string // empty for one that is not of a session
	Generation int64
	Exit       bool // made at the end of its sandbox
}

// Counts are the images that wait for something.
type Counts struct {
	Unneeded int64 // to be deleted
	Failing  int64 // of these, could not be deleted more than three times
	Exits    int64 // of ended sandboxes, still to be found
	Hidden   int64 // may exist at the provider although their id was lost
}
