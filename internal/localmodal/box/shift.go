package box

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// An earlier version stored the files of root's sandboxes with the unshifted ids. shiftTree changes
// the owners in a tree that is not otherwise in use. It changes the root last: a shifted root means
// that the whole tree is shifted.

// shiftTree gives the files of a tree the ids that to returns, unless the root already has its new
// id.
func shiftTree(root string, to func(uint32) uint32) error {
	var st unix.Stat_t
	err := unix.Lstat(root, &st)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return &fs.PathError{Op: "lstat", Path: root, Err: err}
	}
	if to(st.Uid) == st.Uid {
		return nil
	}
	return shiftDir(root, to)
}

func shiftDir(dir string, to func(uint32) uint32) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if e.IsDir() {
			err = shiftDir(path, to)
		} else {
			err = shiftFile(path, to)
		}
		if err != nil {
			return err
		}
	}
	return shiftFile(dir, to)
}

func shiftFile(path string, to func(uint32) uint32) error {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return &fs.PathError{Op: "lstat", Path: path, Err: err}
	}
	uid, gid := to(st.Uid), to(st.Gid)
	if uid == st.Uid && gid == st.Gid {
		return nil // already shifted, possibly under another name of the file
	}
	kind := st.Mode & unix.S_IFMT
	var attributes map[string][]byte
	if kind == unix.S_IFREG || kind == unix.S_IFDIR {
		var err error
		if attributes, err = attributesWithIDs(path, to); err != nil {
			return err
		}
	}
	if err := unix.Lchown(path, int(uid), int(gid)); err != nil {
		return &fs.PathError{Op: "chown", Path: path, Err: err}
	}
	// Changing the owner clears set-id bits and capabilities.
	if kind == unix.S_IFREG && st.Mode&(unix.S_ISUID|unix.S_ISGID) != 0 {
		if err := unix.Chmod(path, st.Mode&0o7777); err != nil {
			return &fs.PathError{Op: "chmod", Path: path, Err: err}
		}
	}
	for name, value := range attributes {
		if err := unix.Lsetxattr(path, name, value, 0); err != nil {
			return fmt.Errorf("set attribute %s of %s: %w", name, path, err)
		}
	}
	return nil
}

// attributesWithIDs returns a file's extended attributes that contain user ids, with other ids.
func attributesWithIDs(path string, to func(uint32) uint32) (map[string][]byte, error) {
	names, err := listAttributes(path)
	if err != nil {
		return nil, err
	}
	found := map[string][]byte{}
	for _, name := range names {
		if name != capabilityAttr && !strings.HasPrefix(name, aclPrefix) {
			continue
		}
		value, err := getAttribute(path, name)
		if err != nil {
			return nil, err
		}
		if value = translateAttribute(name, value, to); value != nil {
			found[name] = value
		}
	}
	return found, nil
}

const (
	capabilityAttr = "security.capability"
	aclPrefix      = "system.posix_acl_"
)

// translateAttribute returns the attribute with other ids, nil if it must be removed.
func translateAttribute(name string, value []byte, to func(uint32) uint32) []byte {
	switch {
	case name == capabilityAttr:
		return translateCapabilities(value, to)
	case strings.HasPrefix(name, aclPrefix):
		return translateACL(value, to)
	default:
		return value
	}
}

// Layouts from the kernel: linux/capability.h and linux/posix_acl_xattr.h.
const (
	capsRevisionMask = 0xFF000000
	capsRevision2    = 0x02000000
	capsRevision3    = 0x03000000
	capsSize2        = 20
	capsSize3        = 24

	aclHeader = 4
	aclEntry  = 8
	aclUser   = 0x02
	aclGroup  = 0x08
)

// translateCapabilities binds the capabilities of a file to the root user that gave them: they are
// only valid in a user namespace whose root is that user. It removes capabilities that would be
// valid on the machine itself.
func translateCapabilities(value []byte, to func(uint32) uint32) []byte {
	if len(value) < capsSize2 {
		return nil
	}
	magic, root := binary.LittleEndian.Uint32(value), uint32(0)
	switch {
	case magic&capsRevisionMask == capsRevision2 && len(value) == capsSize2:
	case magic&capsRevisionMask == capsRevision3 && len(value) == capsSize3:
		root = binary.LittleEndian.Uint32(value[capsSize2:])
	default:
		return nil
	}
	if root = to(root); root == 0 {
		return nil
	}
	out := make([]byte, capsSize3)
	copy(out, value[:capsSize2])
	binary.LittleEndian.PutUint32(out, magic&^capsRevisionMask|capsRevision3)
	binary.LittleEndian.PutUint32(out[capsSize2:], root)
	return out
}

func translateACL(value []byte, to func(uint32) uint32) []byte {
	if len(value) < aclHeader || (len(value)-aclHeader)%aclEntry != 0 {
		return nil
	}
	out := append([]byte(nil), value...)
	for e := out[aclHeader:]; len(e) > 0; e = e[aclEntry:] {
		if tag := binary.LittleEndian.Uint16(e); tag == aclUser || tag == aclGroup {
			binary.LittleEndian.PutUint32(e[4:], to(binary.LittleEndian.Uint32(e[4:])))
		}
	}
	return out
}
