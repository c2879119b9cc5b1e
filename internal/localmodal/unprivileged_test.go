package localmodal_test

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

const nobody = 65534

// Everything that depends on what a user may do, run again as one who may little.
func TestAsAnOrdinaryUser(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("is one already")
	}
	dir, err := os.MkdirTemp("", "ordinary-user-*") //nolint:usetesting // its parents must be open to another user
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	require.NoError(t, os.Chown(dir, nobody, nobody))
	program := filepath.Join(dir, "localmodal.test") // where the user may reach it
	copyProgram(t, program)

	cmd := exec.Command(program, "-test.run="+
		"^Test(ExecPasses|ExecHasATerminal|FilesystemErrors|SnapshotIsExact|SnapshotStops|ExitSnapshot|DirectorySnapshot|"+
		"SandboxSees|HostNetwork|SystemFiles|KilledServer|PortsAre|SecretsAnd|ImageIs|OneOfMany)")
	cmd.Dir = dir
	cmd.Env = []string{"TMPDIR=" + dir, "HOME=" + dir, "PATH=" + os.Getenv("PATH")}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "PASS")
}

func copyProgram(t *testing.T, to string) {
	t.Helper()
	in, err := os.Open("/proc/self/exe")
	require.NoError(t, err)
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o755)
	require.NoError(t, err)
	_, err = io.Copy(out, in)
	require.NoError(t, err)
	require.NoError(t, out.Close())
}
