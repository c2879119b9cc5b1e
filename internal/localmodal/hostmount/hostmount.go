// Package hostmount picks up directories and files of the host as detached mounts that can be
// attached in a sandbox. It resolves a path once, through descriptors, so that the checked file is
// the one that gets mounted, even if others may write to its parent directories.
package hostmount

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/overwinter-dev/overwinter/internal/localmodal/wire"
)

// Tree is a detached mount.
type Tree struct {
	FD    int // closed by the caller
	IsDir bool
}

// Clone copies the mount of m's source. idmap, if not negative, is a user namespace to whose ids
// the files' owners are mapped.
func Clone(m wire.Mount, idmap int) (Tree, error) {
	source, err := open(m)
	if err != nil {
		return Tree{FD: -1}, err
	}
	defer unix.Close(source)
	var st unix.Stat_t
	if err := unix.Fstat(source, &st); err != nil {
		return Tree{FD: -1}, fmt.Errorf("look at %s: %w", m.Source, err)
	}
	fd, err := unix.OpenTree(source, "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE|unix.AT_EMPTY_PATH)
	if err != nil {
		return Tree{FD: -1}, fmt.Errorf("pick up %s: %w", m.Source, err)
	}
	t := Tree{FD: fd, IsDir: st.Mode&unix.S_IFMT == unix.S_IFDIR}
	if err := t.protect(m, idmap); err != nil {
		_ = unix.Close(fd)
		return Tree{FD: -1}, err
	}
	return t, nil
}

func (t Tree) protect(m wire.Mount, idmap int) error {
	if m.ReadOnly {
		attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV}
		if err := unix.MountSetattr(t.FD, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, &attr); err != nil {
			return fmt.Errorf("make %s read-only: %w", m.Source, err)
		}
	}
	if idmap >= 0 {
		attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_IDMAP, Userns_fd: uint64(idmap)}
		if err := unix.MountSetattr(t.FD, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, &attr); err != nil {
			return fmt.Errorf("map the ids of %s: %w", m.Source, err)
		}
	}
	return nil
}

// open returns a descriptor of the file to mount. It follows no links below Source, where sandboxes
// may write.
func open(m wire.Mount) (int, error) {
	root, err := unix.Open(m.Source, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("open %s: %w", m.Source, err)
	}
	if m.Sub == "" {
		return root, nil
	}
	defer unix.Close(root)
	sub, err := unix.Openat2(root, m.Sub, &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_CLOEXEC | unix.O_DIRECTORY,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return -1, fmt.Errorf("open %s below %s: %w", m.Sub, m.Source, err)
	}
	return sub, nil
}
