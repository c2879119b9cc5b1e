package runner

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/workspacefile"
)

// TestSealLinesKeepTheirKeys protects compatibility: a runner and the worker that reads its seal
// may be of different releases.
func TestSealLinesKeepTheirKeys(t *testing.T) {
	t.Parallel()
	change := workspacefile.Change{Seq: 3, Kind: workspacefile.Deleted, Initial: true, Content: workspacefile.Content{
		Info: workspacefile.Info{Path: "a", Size: 1, SHA256: "s", Mode: 0o644, ModifiedAt: time.Unix(1, 0).UTC(), Unsaved: workspacefile.UnsavedFull}, Data: []byte("x"),
	}}
	for want, line := range map[string]SealLine{
		`{"changed": {"Seq": 3, "Change": "deleted", "Initial": true, "Path": "a", "Size": 1, "SHA256": "s", "Mode": 420,
			"ModifiedAt": "1970-01-01T00:00:01Z", "Unsaved": "session_full", "Data": "eA=="}}`: {Changed: &FileChanged{change}},
		`{"diff": {"key": "k", "files": [{"path": "a", "change": "deleted", "additions": 0, "deletions": 1}], "additions": 0, "deletions": 1,
			"filesChanged": 1, "git": {"head": "h", "dirty": true}, "at": "1970-01-01T00:00:01Z"}}`: {Diff: &Diff{workspacefile.Diff{
			Key: "k", Files: []workspacefile.Delta{{Path: "a", Change: workspacefile.Deleted, Deletions: 1}}, Deletions: 1, FilesChanged: 1,
			Git: &workspacefile.GitState{Head: "h", Dirty: true}, At: time.Unix(1, 0).UTC(),
		}}},
	} {
		written, err := json.Marshal(line)
		require.NoError(t, err)
		require.JSONEq(t, want, string(written))
	}
}
