package box

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// settled is the age of a change from which on its timestamp identifies the content: the clock of
// file times ticks only every few milliseconds, so a file may change twice with the same timestamp.
const settled = 100 * time.Millisecond

type inode struct{ dev, ino uint64 }

// fingerprint changes whenever the content or the attributes of a file change. No process can set
// back the change time.
type fingerprint struct {
	inode
	size           int64
	modified, tick unix.Timespec
}

// A symbolic link cannot be changed, only replaced; its change time only changes when another root
// shares it.
func fingerprintOf(st *unix.Stat_t) fingerprint {
	f := fingerprint{inode: inode{st.Dev, st.Ino}, size: st.Size, modified: st.Mtim, tick: st.Ctim}
	if st.Mode&unix.S_IFMT == unix.S_IFLNK {
		f.tick = unix.Timespec{}
	}
	return f
}

// manifest records the state of the upper directory's files when a snapshot copied them.
type manifest struct {
	layer string
	files map[string]fingerprint // by path; only reliable ones
}

func (c *copier) manifest(layer string) *manifest {
	return &manifest{layer: layer, files: c.current}
}

// watch records a file that is about to be copied, if its fingerprint will show any later change.
// Two things could hide a change: a change within the same clock tick, and a store through a
// mapping whose page is already dirty. Starting the write-back of the pages makes the next store
// fault, which updates the times.
func (c *copier) watch(f *os.File, rel string, st *unix.Stat_t) {
	changed := time.Unix(st.Ctim.Unix())
	if time.Since(changed) < settled {
		return
	}
	// A tmpfs does not change the times of a file when a page is stored to.
	var where unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &where); err != nil || where.Type == unix.TMPFS_MAGIC {
		return // as below
	}
	const flags = unix.SYNC_FILE_RANGE_WAIT_BEFORE | unix.SYNC_FILE_RANGE_WRITE
	if err := unix.SyncFileRange(int(f.Fd()), 0, 0, flags); err != nil {
		return // the next snapshot copies it again
	}
	c.current[rel] = fingerprintOf(st)
}

// share links rel from the layer of the previous snapshot if it has not changed since.
func (c *copier) share(rel, dst string, st *unix.Stat_t) (bool, error) {
	if c.previous == nil {
		return false, nil
	}
	print, ok := c.previous.files[rel]
	if !ok || print != fingerprintOf(st) {
		return false, nil
	}
	err := os.Link(filepath.Join(c.layer(c.previous.layer), rel), dst)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) || errors.Is(err, unix.EMLINK) {
		return false, nil // the layer is deleted or unreadable, or the file has too many links: copy
	}
	if err != nil {
		return false, err
	}
	c.current[rel] = print
	c.stats.Linked++
	return true, nil
}
