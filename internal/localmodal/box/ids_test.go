package box

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// capsOnTheMachine are file capabilities as set by a root without a user namespace.
var capsOnTheMachine = []byte{1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}

func owner(t *testing.T, path string) (uid, gid int, mode uint32) {
	t.Helper()
	var st unix.Stat_t
	require.NoError(t, unix.Lstat(path, &st))
	return int(st.Uid), int(st.Gid), st.Mode & 0o7777
}

// TestLayersOfPreviousVersionAreAdopted opens a data directory of an earlier version, whose layers
// belong to the unshifted ids.
func TestLayersOfPreviousVersionAreAdopted(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("an ordinary user's files have always been his own")
	}
	dir := t.TempDir()
	layer := filepath.Join(dir, "layers", "old")
	require.NoError(t, os.MkdirAll(filepath.Join(layer, "root", "d"), 0o755))
	file := func(name string) string { return filepath.Join(layer, "root", name) }
	require.NoError(t, os.WriteFile(file("f"), []byte("kept"), 0o600))
	require.NoError(t, os.Chown(file("f"), 1000, 1001))
	require.NoError(t, os.WriteFile(file("suid"), []byte("x"), 0o755))
	require.NoError(t, unix.Chmod(file("suid"), 0o4755))
	require.NoError(t, unix.Setxattr(file("suid"), capabilityAttr, capsOnTheMachine, 0))
	require.NoError(t, os.Link(file("suid"), file("d/twin")))
	require.NoError(t, os.Symlink("/etc/passwd", file("link")))
	require.NoError(t, os.MkdirAll(filepath.Join(layer, "etc"), 0o755))
	require.NoError(t, makeWhiteout(filepath.Join(layer, "etc", "profile")))
	// A migration was interrupted here.
	require.NoError(t, os.Lchown(file("d"), firstID, firstID))

	for range 2 { // the second run has nothing to do
		rt, err := Open(t.Context(), Options{Dir: dir, Isolation: Namespaces})
		require.NoError(t, err)
		b := &bundle{t, rt}
		bx := b.start("old")
		require.Equal(t, "kept 1000:1001 600\n4755 0 0 2\n/etc/passwd 0 0\n", b.sh(bx,
			"cd /root && printf '%s ' $(cat f) && stat -c '%u:%g %a' f && stat -c '%a %u %g %h' suid && printf '%s ' $(readlink link) && stat -c '%u %g' link && ! test -e /etc/profile"))
		bx.Kill()
		require.NoError(t, rt.Close())
	}
	for path, want := range map[string]int{"f": firstID + 1000, "suid": firstID, "d": firstID, "d/twin": firstID, "link": firstID, ".": firstID, "..": firstID} {
		uid, _, _ := owner(t, file(path))
		require.Equal(t, want, uid, path)
	}
	_, gid, _ := owner(t, file("f"))
	require.Equal(t, firstID+1001, gid)
	_, _, mode := owner(t, file("suid"))
	require.Equal(t, uint32(0o4755), mode)
	uid, _, _ := owner(t, "/etc/passwd")
	require.Zero(t, uid, "links are not followed")
	value := make([]byte, 64)
	n, err := unix.Getxattr(file("suid"), capabilityAttr, value)
	require.NoError(t, err)
	require.Equal(t, capsSize3, n, "the capabilities are tied to a user namespace")
	require.Equal(t, uint32(firstID), binary.LittleEndian.Uint32(value[capsSize2:]))
}

// No process of root's sandboxes has an id of a user of the machine, and no mapping maps ids to
// themselves.
func TestRootsSandboxesAreUnprivileged(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("an ordinary user's sandboxes are that user")
	}
	for name, o := range storages {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, o)
			bx := b.start()
			b.sh(bx, "echo x > /root/f && chown 5:6 /root/f && setpriv --reuid=1000 --regid=1000 --clear-groups id -u > /tmp/id && grep -q 1000 /tmp/id")
			name := b.daemon(bx)
			require.Equal(t, 1, running(t, name))
			require.Equal(t, firstID, uidOf(t, name))
			var uid, gid int
			if b.rt.Copies() {
				uid, gid, _ = owner(t, filepath.Join(b.rt.treePath(bx.id), "root/f"))
			} else {
				uid, gid, _ = owner(t, filepath.Join(b.rt.upperPath(bx.id), "root/f"))
			}
			require.Equal(t, []int{firstID + 5, firstID + 6}, []int{uid, gid})
			require.Equal(t, []int{firstID, firstID, 0o700}, func() []int {
				uid, gid, mode := owner(t, b.rt.boxPath(bx.id))
				return []int{uid, gid, int(mode)}
			}())
		})
	}
}

func TestCapabilitiesOfFilesAreTiedToTheirNamespace(t *testing.T) {
	t.Parallel()
	ids := idRange{first: firstID, count: countIDs}
	tied := translateCapabilities(capsOnTheMachine, ids.shifted)
	require.Len(t, tied, capsSize3)
	require.Equal(t, uint32(firstID), binary.LittleEndian.Uint32(tied[capsSize2:]))
	require.Equal(t, capsOnTheMachine[4:], tied[4:capsSize2])
	require.Equal(t, tied, translateCapabilities(tied, ids.shifted), "once is enough")
	require.Nil(t, translateCapabilities(tied, ids.plain), "without a user namespace they would count on the machine")
	require.Nil(t, translateCapabilities(capsOnTheMachine, same), "they count on the machine")
	for _, damaged := range [][]byte{nil, {1}, capsOnTheMachine[:19], append([]byte{1, 0, 0, 9}, capsOnTheMachine[4:]...)} {
		require.Nil(t, translateCapabilities(damaged, ids.shifted))
	}
}

func TestACLsGetOtherIDs(t *testing.T) {
	t.Parallel()
	acl := func(user uint32) []byte {
		b := []byte{2, 0, 0, 0, 0x01, 0, 7, 0, 0xff, 0xff, 0xff, 0xff, 0x02, 0, 6, 0}
		return binary.LittleEndian.AppendUint32(b, user)
	}
	ids := idRange{first: firstID, count: countIDs}
	require.Equal(t, acl(firstID+7), translateACL(acl(7), ids.shifted))
	require.Equal(t, acl(7), translateACL(acl(firstID+7), ids.plain))
	require.Nil(t, translateACL(acl(7)[:13], ids.shifted))
}
