package localmodal_test

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/localmodal/box"
	"github.com/overwinter-dev/overwinter/internal/memorytest"
)

const nobody = 65534

// Runs all tests that depend on privileges again as an ordinary user.
func TestAsOrdinaryUser(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 || os.Getenv(testLevel) != "" {
		t.Skip("is one already, or the run of a single level")
	}
	dir := memorytest.Dir(t) // another user must be able to access its parents
	require.NoError(t, os.Chown(dir, nobody, nobody))
	program := filepath.Join(dir, "localmodal.test") // in a place that the user can access
	copyProgram(t, program)

	for level, tests := range map[box.Isolation]string{
		box.Namespaces: privileged + "|^TestOneOfMany", box.Chroot: "^Test(ExecPasses|SnapshotIsExact|SandboxSees|SystemFiles|KilledServer)", box.Directory: leveled,
	} {
		t.Run(string(level), func(t *testing.T) {
			t.Parallel()
			cmd := exec.Command(program, "-test.v", "-test.run="+tests)
			cmd.Dir = dir
			cmd.Env = []string{"TMPDIR=" + dir, "HOME=" + dir, "PATH=" + os.Getenv("PATH"), testLevel + "=" + string(level)}
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
			requirePass(t, cmd)
		})
	}
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
