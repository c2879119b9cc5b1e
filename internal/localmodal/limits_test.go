package localmodal_test

import (
	"testing"

	modal "github.com/modal-labs/modal-client/go"
	"github.com/stretchr/testify/require"
)

// A maximum that is asked for by the SDK is kept where the machine has control groups.
func TestSandboxHasTheMemoryItAskedFor(t *testing.T) {
	t.Parallel()
	b := setup(t)
	if err := b.server.Unlimited(); err != nil {
		t.Skip("no control groups here: ", err)
	}
	sb := b.create(&modal.SandboxCreateParams{MemoryMiB: 128, MemoryLimitMiB: 192})
	require.Contains(t, b.sh(sb, `head -c 600M /dev/zero | tail -c 600M >/dev/null; echo "ended $?"`), "ended 137")
	require.Contains(t, b.sh(sb, "echo on"), "on")
}
