package resource

import "github.com/overwinter-dev/overwinter/internal/bundle"

// ArchiveJSON is the state of a bundle's archive.
type ArchiveJSON struct {
	BundleID  string              `json:"bundleId"`
	Status    bundle.ArchiveState `json:"status"`
	Reason    string              `json:"reason,omitempty"` // the reason of a failure
	Bytes     int64               `json:"bytes,omitempty"`  // of the stored data; the download may have more or less
	ExpiresAt *Time               `json:"expiresAt,omitempty"`
}

// Archive converts a.
func Archive(a bundle.Archive) ArchiveJSON {
	return ArchiveJSON{BundleID: a.BundleID, Status: a.State, Reason: a.Reason, Bytes: a.Bytes, ExpiresAt: OptionalTime(a.ExpiresAt)}
}
