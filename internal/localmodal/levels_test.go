package localmodal_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/localmodal/box"
)

// leveled are the tests that depend on the isolation level, and privileged those of them that
// depend on the user's privileges. Together, root and an ordinary user run all of them on each
// level.
const (
	privileged = "^Test(ExecPasses|ExecHasTerminal|FilesystemErrors|SnapshotIsExact|SnapshotStops|ExitSnapshot|DirectorySnapshot|" +
		"SandboxSees|HostNetwork|SystemFiles|KilledServer|PortsAre|SecretsAnd|ImageIs)"
	leveled = privileged + "|^Test(ExecMoves|ExecTimeout|OutputArrives|ProcessOutlives|BackgroundChild|OrphansAre|FilesystemCalls|FilesystemWatch|" +
		"DeletedImage|HostEnvironment|StoppedServer|TerminateKills|SandboxEnds)"
)

// The fallback levels must pass the same tests as the best level.
func TestOnEachFallBack(t *testing.T) {
	t.Parallel()
	if os.Getenv(testLevel) != "" {
		return // this is such a process
	}
	for level, tests := range map[box.Isolation]string{box.Chroot: leveled, box.Directory: privileged} {
		t.Run(string(level), func(t *testing.T) {
			t.Parallel()
			cmd := exec.Command(os.Args[0], "-test.v", "-test.run="+tests)
			cmd.Env = append(os.Environ(), testLevel+"="+string(level))
			requirePass(t, cmd)
		})
	}
}

// requirePass runs a test binary, and logs what its level declares.
func requirePass(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", failures(string(out)))
	require.Contains(t, string(out), "PASS")
	said := map[string]bool{}
	for line := range strings.Lines(string(out)) {
		if _, declared, ok := strings.Cut(line, "declares: "); ok && !said[declared] {
			said[declared] = true
			t.Logf("cannot, as declared: %s", strings.TrimSpace(declared))
		}
	}
}

// failures removes the output of passed tests.
func failures(output string) string {
	var kept, running strings.Builder
	for line := range strings.Lines(output) {
		running.WriteString(line)
		switch {
		case strings.HasPrefix(line, "--- PASS"), strings.HasPrefix(line, "=== "):
			running.Reset()
		case strings.HasPrefix(line, "--- FAIL"), strings.HasPrefix(line, "panic"):
			kept.WriteString(running.String())
			running.Reset()
		}
	}
	return kept.String() + running.String()
}
