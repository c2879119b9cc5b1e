package localmodal_test

import (
	"testing"

	modal "github.com/modal-labs/modal-client/go"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/overwinter-dev/overwinter/internal/localmodal/box"
	"github.com/overwinter-dev/overwinter/internal/localmodal/localmodaltest"
)

// A maximum requested by the SDK is enforced if the machine has control groups.
func TestSandboxHasRequestedMemory(t *testing.T) {
	t.Parallel()
	b := setup(t)
	if err := b.server.Unlimited(); err != nil {
		t.Skip("no control groups here: ", err)
	}
	sb := b.create(&modal.SandboxCreateParams{MemoryMiB: 128, MemoryLimitMiB: 192})
	require.Contains(t, b.sh(sb, `head -c 600M /dev/zero | tail -c 600M >/dev/null; echo "ended $?"`), "ended 137")
	require.Contains(t, b.sh(sb, "echo on"), "on")
}

// If a machine or a sandbox has temporarily run out of a resource, the failure is not attributed to
// the command.
func TestExecWithoutFreeProcessIsUnavailable(t *testing.T) {
	t.Parallel()
	o := options(t, "")
	o.Limits = box.Limits{Processes: 64}
	b := connect(t, localmodaltest.Start(t, o))
	if err := b.server.Unlimited(); err != nil {
		t.Skip("no control groups here: ", err)
	}
	sb := b.create(nil)
	_, err := sb.Exec(b.ctx, []string{"no-such-program"}, nil)
	require.Equal(t, codes.InvalidArgument, status.Code(err), "%v", err)
	for range o.Limits.Processes {
		if _, err = sb.Exec(b.ctx, []string{"sleep", "1000"}, nil); err != nil {
			break
		}
	}
	require.Equal(t, codes.Unavailable, status.Code(err), "%v", err)
	require.ErrorContains(t, err, "reserved for its init")
}
