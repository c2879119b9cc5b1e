package localmodal_test

import (
	"testing"

	modal "github.com/modal-labs/modal-client/go"
	"github.com/stretchr/testify/require"
)

func TestExecPassesStreamsAndExitCode(t *testing.T) {
	t.Parallel()
	b := setup(t)
	sb := b.create(&modal.SandboxCreateParams{Env: map[string]string{"A": "1"}, Workdir: "/work/dir"})
	r := b.exec(sb, &modal.SandboxExecParams{Env: map[string]string{"B": "2"}}, "from stdin",
		"sh", "-c", "cat; echo \" $A $B $PWD\"; echo oops >&2; exit 3")
	require.Equal(t, result{3, "from stdin 1 2 /work/dir\n", "oops\n"}, r)
}

func TestRestoredSandboxSeesTheSnapshot(t *testing.T) {
	t.Parallel()
	b := setup(t)
	sb := b.create(nil)
	b.sh(sb, "echo one > /root/f")
	im := b.snapshot(sb)
	b.sh(sb, "echo two > /root/f")
	again := b.createFrom(im, nil)
	require.Equal(t, "one\n", b.sh(again, "cat /root/f"))
	require.Equal(t, "two\n", b.sh(sb, "cat /root/f"))
	b.terminate(sb)
	code, err := sb.Poll(b.ctx, nil)
	require.NoError(t, err)
	require.Equal(t, new(137), code)
}
