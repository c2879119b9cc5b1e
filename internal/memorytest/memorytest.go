// Package memorytest gives tests directories whose files are in memory.
//
// On some file systems, creating a file takes longer the more files were deleted recently. Tests
// that create and delete thousands of files then spend most of their processor time on that.
package memorytest

import (
	"os"
	"regexp"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

// needed is how much memory must be available for files to be kept in memory: several packages are
// tested at once, and a Postgres server keeps up to 1 GB of write-ahead log.
const needed = 8 << 30

var available = regexp.MustCompile(`(?m)^MemAvailable: +(\d+) kB$`)

// Parent returns a directory whose files are in memory, for new directories. It returns the
// system's temporary directory if there is none with enough room, or if TMPDIR is set.
func Parent() string {
	const directory = "/dev/shm"
	var files unix.Statfs_t
	if os.Getenv("TMPDIR") != "" || unix.Access(directory, unix.W_OK|unix.X_OK) != nil || unix.Statfs(directory, &files) != nil {
		return os.TempDir()
	}
	meminfo, _ := os.ReadFile("/proc/meminfo") // the file may not exist
	found := available.FindSubmatch(meminfo)
	if found == nil {
		return os.TempDir()
	}
	kib, _ := strconv.ParseUint(string(found[1]), 10, 53) // digits
	if kib<<10 < needed || files.Bavail*uint64(files.Bsize) < needed {
		return os.TempDir()
	}
	return directory
}

// Executable is Parent for directories with programs.
func Executable() string {
	parent := Parent()
	var files unix.Statfs_t
	if unix.Statfs(parent, &files) != nil || files.Flags&unix.ST_NOEXEC != 0 {
		return os.TempDir()
	}
	return parent
}

// Dir returns a new directory below Executable, which any user may traverse, and removes it when
// the test ends. In memory, a write through a mapping does not change the times of a file.
func Dir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp(Executable(), "owmem") //nolint:usetesting // t.TempDir is on the disk
	if err != nil {
		t.Fatalf("directory in memory: %v", err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Errorf("remove a directory in memory: %v", err)
		}
	})
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatalf("directory in memory: %v", err)
	}
	return dir
}
