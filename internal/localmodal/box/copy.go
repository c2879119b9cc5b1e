package box

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// opaqueAttr marks a directory that hides the directories below it.
const opaqueAttr = "user.overlay.opaque"

// copier copies an upper directory exactly: content, modes, owners, times, hard and symbolic links,
// extended attributes, whiteouts and opaque directories.
type copier struct {
	stats    SnapshotStats
	previous *manifest
	current  map[string]fingerprint
	layer    func(id string) string // path of a layer

	dst     string
	links   map[inode]string    // first copy of a file with several names
	owner   func(uint32) uint32 // maps owners of originals to owners of copies
	root    bool
	noClone bool // the file system cannot share blocks
	flat    bool // the copy is a separate root, not a layer: directories hide nothing
}

func newCopier(previous *manifest, layer func(string) string, owner func(uint32) uint32) *copier {
	return &copier{
		previous: previous, current: map[string]fingerprint{}, layer: layer, owner: owner,
		links: map[inode]string{}, root: os.Geteuid() == 0,
	}
}

// copyTree copies a tree of a sandbox. It opens each file once, by its name in an open directory
// and without following links, and then inspects and copies the opened file. Thus it never reads a
// file outside the tree, even if files are renamed meanwhile.
func (c *copier) copyTree(ctx context.Context, src, dst string) error {
	c.dst = dst
	root, err := openRoot(src)
	if err != nil {
		return err
	}
	defer root.close()
	return c.dir(ctx, ".", root)
}

func (c *copier) dir(ctx context.Context, rel string, src *source) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	dst := filepath.Join(c.dst, rel)
	if err := os.Mkdir(dst, 0o700); err != nil {
		return err
	}
	err := src.eachEntry(func(name string, entry *source) error {
		return c.entry(ctx, filepath.Join(rel, name), entry)
	})
	if err != nil {
		return err
	}
	return c.attributes(src.path, dst, &src.st)
}

func (c *copier) entry(ctx context.Context, rel string, src *source) error {
	if src.isDir() {
		return c.dir(ctx, rel, src)
	}
	return c.leaf(src, filepath.Join(c.dst, rel), rel)
}

// leaf copies anything but a directory. With an empty rel the file is not added to the manifest.
func (c *copier) leaf(src *source, dst, rel string) error {
	st := &src.st
	if st.Nlink > 1 {
		key := inode{st.Dev, st.Ino}
		if first, ok := c.links[key]; ok {
			return os.Link(first, dst)
		}
		c.links[key] = dst
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		shared, err := c.share(rel, dst, st)
		if shared || err != nil {
			return err
		}
		if err := c.data(src.path, dst, rel, st); err != nil {
			return err
		}
	case unix.S_IFLNK:
		target, err := src.readlink()
		if err != nil {
			return err
		}
		if err := os.Symlink(target, dst); err != nil {
			return err
		}
	default:
		// Pipes, sockets, and whiteouts. A whiteout is a 0:0 character device, the only device that
		// an ordinary user may create.
		if err := unix.Mknod(dst, st.Mode, int(st.Rdev)); err != nil {
			return &fs.PathError{Op: "mknod", Path: dst, Err: err}
		}
	}
	return c.attributes(src.path, dst, st)
}

// data copies a regular file. It shares blocks if the file system can.
func (c *copier) data(src, dst, rel string, st *unix.Stat_t) error {
	var in *os.File
	err := whileOpen(src, st, func() (err error) {
		in, err = os.OpenFile(src, os.O_RDONLY|unix.O_NONBLOCK, 0)
		return err
	})
	if err != nil {
		return err
	}
	defer in.Close()
	if rel != "" {
		c.watch(in, rel, st)
	}
	out, err := os.OpenFile(dst, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	n, err := c.fill(out, in, st)
	c.stats.Copied++
	c.stats.Bytes += n
	return errors.Join(err, out.Close())
}

func (c *copier) fill(out, in *os.File, st *unix.Stat_t) (int64, error) {
	if st.Size == 0 {
		return 0, nil
	}
	if !c.noClone {
		if err := unix.IoctlFileClone(int(out.Fd()), int(in.Fd())); err == nil {
			return st.Size, nil
		}
		c.noClone = true
	}
	if st.Blocks*512 < st.Size {
		return fillSparse(out, in, st.Size)
	}
	return io.Copy(out, in)
}

// fillSparse copies the data and keeps the holes.
func fillSparse(out, in *os.File, size int64) (int64, error) {
	copied := int64(0)
	for at := int64(0); at < size; {
		start, err := unix.Seek(int(in.Fd()), at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) { // only a hole remains
			break
		}
		if err != nil {
			return copied, fmt.Errorf("find data: %w", err)
		}
		end, err := unix.Seek(int(in.Fd()), start, unix.SEEK_HOLE)
		if err != nil {
			return copied, fmt.Errorf("find hole: %w", err)
		}
		n, err := io.Copy(io.NewOffsetWriter(out, start), io.NewSectionReader(in, start, end-start))
		copied += n
		if err != nil {
			return copied, err
		}
		at = end
	}
	return copied, out.Truncate(size)
}

// attributes gives dst the attributes of src. src is the path of the file itself: it is not a
// symbolic link. Times are set last, since every other change modifies them.
func (c *copier) attributes(src, dst string, st *unix.Stat_t) error {
	if c.root {
		if err := unix.Lchown(dst, int(c.owner(st.Uid)), int(c.owner(st.Gid))); err != nil {
			return &fs.PathError{Op: "chown", Path: dst, Err: err}
		}
	}
	kind := st.Mode & unix.S_IFMT
	if kind == unix.S_IFREG || kind == unix.S_IFDIR { // other kinds have none that are kept
		if err := whileOpen(src, st, func() error { return c.extended(src, dst) }); err != nil {
			return err
		}
	}
	if kind != unix.S_IFLNK {
		if err := unix.Chmod(dst, st.Mode&0o7777); err != nil {
			return &fs.PathError{Op: "chmod", Path: dst, Err: err}
		}
	}
	times := []unix.Timespec{st.Atim, st.Mtim}
	if err := unix.UtimesNanoAt(unix.AT_FDCWD, dst, times, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return &fs.PathError{Op: "utimes", Path: dst, Err: err}
	}
	return nil
}

func (c *copier) extended(src, dst string) error {
	names, err := listAttributes(src)
	if err != nil {
		return err
	}
	for _, name := range names {
		if !c.keeps(name) {
			continue
		}
		value, err := getAttribute(src, name)
		if err != nil {
			return err
		}
		if value = translateAttribute(name, value, c.owner); value == nil {
			continue
		}
		if err := unix.Lsetxattr(dst, name, value, 0); err != nil {
			return fmt.Errorf("set attribute %s of %s: %w", name, dst, err)
		}
	}
	return nil
}

// keeps excludes the overlay's internal attributes, which refer to inodes of the upper directory,
// and those that only root may set.
func (c *copier) keeps(name string) bool {
	switch {
	case strings.HasPrefix(name, "user.overlay."):
		return name == opaqueAttr && !c.flat
	case strings.HasPrefix(name, "user."), strings.HasPrefix(name, "system.posix_acl_"):
		return true
	case name == capabilityAttr:
		return c.root
	default:
		return false
	}
}

func listAttributes(path string) ([]string, error) {
	n, err := unix.Listxattr(path, nil)
	if errors.Is(err, unix.ENOTSUP) || errors.Is(err, unix.EACCES) || err == nil && n == 0 {
		return nil, nil
	}
	buf := make([]byte, n)
	if err == nil {
		n, err = unix.Listxattr(path, buf)
	}
	if err != nil {
		return nil, fmt.Errorf("list attributes of %s: %w", path, err)
	}
	return strings.Split(strings.TrimRight(string(buf[:n]), "\x00"), "\x00"), nil
}

func getAttribute(path, name string) ([]byte, error) {
	n, err := unix.Getxattr(path, name, nil)
	if err == nil {
		buf := make([]byte, n)
		if n, err = unix.Getxattr(path, name, buf); err == nil {
			return buf[:n], nil
		}
	}
	return nil, fmt.Errorf("get attribute %s of %s: %w", name, path, err)
}
