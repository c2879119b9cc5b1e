package postgrestest

import (
	"os"
	"regexp"
	"strconv"

	"golang.org/x/sys/unix"
)

// memoryNeeded is how much memory must be available for servers to keep their files in memory:
// several packages are tested at once, and a server keeps up to 1 GB of write-ahead log.
const memoryNeeded = 8 << 30

var memoryAvailable = regexp.MustCompile(`(?m)^MemAvailable: +(\d+) kB$`)

// Memory returns a directory whose files are in memory, for StartServer. It returns the system's
// temporary directory if there is none with enough room, or if TMPDIR is set.
//
// Each test's database consists of a thousand files that are created and deleted. On a disk this
// takes a quarter of the processor time of the tests of package postgres.
func Memory() string {
	const directory = "/dev/shm"
	var files unix.Statfs_t
	if os.Getenv("TMPDIR") != "" || unix.Access(directory, unix.W_OK|unix.X_OK) != nil || unix.Statfs(directory, &files) != nil {
		return os.TempDir()
	}
	meminfo, _ := os.ReadFile("/proc/meminfo") // the file may not exist
	available := memoryAvailable.FindSubmatch(meminfo)
	if available == nil {
		return os.TempDir()
	}
	kib, _ := strconv.ParseUint(string(available[1]), 10, 53) // digits
	if kib<<10 < memoryNeeded || files.Bavail*uint64(files.Bsize) < memoryNeeded {
		return os.TempDir()
	}
	return directory
}
