package runner

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/overwinter-dev/overwinter/internal/workspacefile"
)

// FilesKnown lists the stored files of the workspace, for a runner whose index does not continue
// from the stored position.
type FilesKnown struct {
	Files []workspacefile.Known `json:"files"`
}

// FilesBegun reports the start of a lineage, in which the following changes are numbered.
type FilesBegun struct {
	Lineage string `json:"lineage"`
	Base    string `json:"base,omitempty"` // commit against which diffs are taken
}

// FileChanged is one change of a file in the workspace.
type FileChanged struct{ workspacefile.Change }

// FilesBounded reports that the workspace has more files than workspacefile.MaxWatched. It is
// numbered like a change.
type FilesBounded struct {
	Seq int64 `json:"seq"`
}

// Diff is the difference between the workspace and the session's beginning. It precedes the answer
// to a flush if it differs from the stored one.
type Diff struct {
	workspacefile.Diff
}

// Survey is sent by serve only to attach, which replaces it by a Diff, because taking a diff starts
// processes.
type Survey struct {
	Key       string `json:"key"`
	Workspace string `json:"workspace"`
}

// fileHeader precedes the content of a change, in JSON.
type fileHeader struct {
	Seq        int64                    `json:"seq"`
	Change     workspacefile.ChangeKind `json:"change"`
	Initial    bool                     `json:"initial,omitempty"`
	Path       string                   `json:"path"`
	Size       int64                    `json:"size"`
	SHA256     string                   `json:"sha256,omitempty"`
	Mode       uint32                   `json:"mode"`
	ModifiedAt time.Time                `json:"modifiedAt"`
	Unsaved    workspacefile.Unsaved    `json:"unsaved,omitempty"`
	Content    bool                     `json:"content,omitempty"` // the content follows; it may be empty
}

func (f *FileChanged) encode() ([]byte, error) {
	h, err := json.Marshal(fileHeader{
		Seq: f.Seq, Change: f.Kind, Initial: f.Initial, Path: f.Path, Size: f.Size, SHA256: f.SHA256,
		Mode: f.Mode, ModifiedAt: f.ModifiedAt, Unsaved: f.Unsaved, Content: f.Data != nil,
	})
	if err != nil {
		return nil, err
	}
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(h))), h...), nil
}

func decodeFile(p []byte) (Message, error) {
	if len(p) < 4 {
		return nil, fmt.Errorf("file change of %d bytes is too short", len(p))
	}
	n := binary.BigEndian.Uint32(p)
	p = p[4:]
	if uint64(n) > uint64(len(p)) {
		return nil, fmt.Errorf("file change with a header of %d bytes is too short", n)
	}
	var h fileHeader
	if err := json.Unmarshal(p[:n], &h); err != nil {
		return nil, fmt.Errorf("decode file change: %w", err)
	}
	f := &FileChanged{workspacefile.Change{Seq: h.Seq, Kind: h.Change, Initial: h.Initial}}
	f.Info = workspacefile.Info{
		Path: h.Path, Size: h.Size, SHA256: h.SHA256, Mode: h.Mode, ModifiedAt: h.ModifiedAt, Unsaved: h.Unsaved,
	}
	p = p[n:]
	if h.Content {
		f.Data = p
	} else if len(p) > 0 {
		return nil, errors.New("file change with content that its header does not know of")
	}
	return f, nil
}
