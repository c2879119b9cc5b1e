package box

import (
	"io"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestMountsAreHeldBeyondEndOfBox checks that they are still there after the last process, and that
// the files of the box can be discarded meanwhile.
func TestMountsAreHeldBeyondEndOfBox(t *testing.T) {
	t.Parallel()
	b := setup(t, storages["overlay"])
	bx := b.start()
	b.sh(bx, "echo held > /tmp/file")
	root, err := bx.openRoot()
	require.NoError(t, err)
	release := bx.HoldMounts()
	bx.Kill()

	fd, err := unix.Openat(int(root.Fd()), "tmp/file", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	require.NoError(t, err)
	f := os.NewFile(uintptr(fd), "file")
	text, err := io.ReadAll(f)
	require.NoError(t, err)
	require.Equal(t, "held\n", string(text))
	require.NoError(t, f.Close())
	require.NoError(t, root.Close())

	require.NoError(t, b.rt.Discard(bx.id))
	release()
	require.NoDirExists(t, b.rt.boxPath(bx.id))
	bx.HoldMounts()() // it has ended: nothing to hold
}
