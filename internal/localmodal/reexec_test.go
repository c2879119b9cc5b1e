package localmodal_test

import (
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/localmodal/wire"
)

// TestProgramsOfSandboxesStartBeforeOtherPackages starts this program as a file tool, whose work is
// done before packages such as that of the protocol are initialized.
func TestProgramsOfSandboxesStartBeforeOtherPackages(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	require.NoError(t, err)
	traced := func(name string, args ...string) string {
		cmd := exec.CommandContext(t.Context(), self, args...)
		cmd.Args[0], cmd.Env = name, append(os.Environ(), "GODEBUG=inittrace=1")
		out, _ := cmd.CombinedOutput() // the tool refuses its empty input
		return string(out)
	}
	const other = "init github.com/modal-labs/modal-client/go/proto/modal_proto "
	require.Contains(t, traced(self, "-test.list", "^$"), other)
	require.NotContains(t, traced(wire.FileToolsName), other)
	require.Contains(t, traced(wire.FileToolsName), "init runtime")
}
