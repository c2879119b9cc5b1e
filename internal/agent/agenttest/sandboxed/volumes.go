package sandboxed

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	modal "github.com/modal-labs/modal-client/go"
	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/agent/npm/npmtest"
)

// volumes are the volumes of a sandbox. Programs of agents have hundreds of megabytes, and sending
// them into the sandbox would take more processor time than the tests that run them.
type volumes struct {
	dataDir     string // of the local Modal
	directories map[string][]string
}

// directories returns the files and directories of this machine to be copied into each directory of
// the sandbox.
func (o Options) directories(t *testing.T) map[string][]string {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	program := filepath.Join(t.TempDir(), "test")
	require.NoError(t, os.Symlink(self, program))
	copied := map[string][]string{inside: {program}}
	if _, err := os.Stat("testdata"); err == nil {
		copied[inside] = append(copied[inside], "testdata")
	}
	if p, ok := o.Adapter.(packaged); ok && !*all {
		for _, p := range p.Packages() {
			copied[packages] = append(copied[packages], npmtest.Directory(t, p))
		}
	}
	return copied
}

// create creates the volumes, by the directories of the sandbox at which they are mounted.
func (v volumes) create(t *testing.T, client *modal.Client) map[string]*modal.Volume {
	t.Helper()
	created := map[string]*modal.Volume{}
	for target, from := range v.directories {
		volume, err := client.Volumes.FromName(t.Context(), filepath.Base(target), &modal.VolumeFromNameParams{CreateIfMissing: true})
		require.NoError(t, err)
		created[target] = volume
		// The local Modal stores a volume in a directory of this name.
		into := filepath.Join(v.dataDir, "volumes", volume.VolumeID)
		out, err := exec.CommandContext(t.Context(), "cp", append([]string{"-rL", "-t", into}, from...)...).CombinedOutput()
		require.NoError(t, err, "%s", out)
		out, err = exec.CommandContext(t.Context(), "chown", "-R", "--reference", into, into).CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	return created
}
