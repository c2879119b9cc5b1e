package resource

import "github.com/overwinter-dev/overwinter/internal/bundle"

// ArchiveJSON is how far the archive of a bundle is.
type ArchiveJSON struct {
	BundleID  string              `json:"bundleId"`
	Status    bundle.ArchiveState `json:"status"`
	Reason    string              `json:"reason,omitempty"` // why it failed
	Bytes     int64               `json:"bytes,omitempty"`  // of what is stored; what is sent may have more or less
	ExpiresAt *Time               `json:"expiresAt,omitempty"`
}

// Archive converts a.
func Archive(a bundle.Archive) ArchiveJSON {
	return ArchiveJSON{BundleID: a.BundleID, Status: a.State, Reason: a.Reason, Bytes: a.Bytes, ExpiresAt: OptionalTime(a.ExpiresAt)}
}
