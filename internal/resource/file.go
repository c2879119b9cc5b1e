package resource

import "github.com/overwinter-dev/overwinter/internal/workspacefile"

// FileJSON is a file of a workspace in JSON.
type FileJSON struct {
	Path       string `json:"path"`
	Size       int64  `json:"size"`
	SHA256     string `json:"sha256,omitempty"`
	Mode       uint32 `json:"mode"`
	ModifiedAt Time   `json:"modifiedAt"`
	Saved      bool   `json:"saved"`
	// Unsaved is the reason why the content is not kept; empty if it is.
	Unsaved workspacefile.Unsaved `json:"unsaved,omitempty"`
}

// Files converts files.
func Files(files []workspacefile.Info) []FileJSON {
	out := make([]FileJSON, len(files))
	for i, f := range files {
		out[i] = FileJSON{
			Path: f.Path, Size: f.Size, SHA256: f.SHA256, Mode: f.Mode, ModifiedAt: Time(f.ModifiedAt),
			Saved: f.Saved(), Unsaved: f.Unsaved,
		}
	}
	return out
}

// DiffJSON is the difference of a workspace from its initial state. All fields are empty before the
// first comparison.
type DiffJSON struct {
	Base         *string                 `json:"base"` // the commit that it is computed against; null without one
	Git          *workspacefile.GitState `json:"git"`
	Files        []workspacefile.Delta   `json:"files"`
	FilesChanged int                     `json:"filesChanged"`
	Additions    int64                   `json:"additions"`
	Deletions    int64                   `json:"deletions"`
	Patch        string                  `json:"patch"`
	Truncated    bool                    `json:"truncated"`
	ComputedAt   *Time                   `json:"computedAt"`
}

// Diff converts a diff; nil means that none was computed.
func Diff(d *workspacefile.Diff) DiffJSON {
	if d == nil {
		return DiffJSON{Files: []workspacefile.Delta{}}
	}
	at := Time(d.At)
	out := DiffJSON{
		Git: d.Git, Files: d.Files, FilesChanged: d.FilesChanged, Additions: d.Additions, Deletions: d.Deletions,
		Patch: string(d.Patch), Truncated: d.Truncated, ComputedAt: &at,
	}
	if d.Base != "" {
		out.Base = &d.Base
	}
	if out.Files == nil {
		out.Files = []workspacefile.Delta{}
	}
	return out
}
