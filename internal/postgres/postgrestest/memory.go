package postgrestest

import (
	"os"
	"regexp"
	"strconv"

	"golang.org/x/sys/unix"
)

// memoryNeeded is how much memory must be available for servers to have their files there: some packages are tested at once, and a
// server keeps up to 1 GB of its log of transactions.
const memoryNeeded = 8 << 30

var memoryAvailable = regexp.MustCompile(`(?m)^MemAvailable: +(\d+) kB$`)

// Memory is a directory whose files are in memory, for StartServer. It is the system's temporary directory if there is none
// with enough room, or TMPDIR says where files go.
//
// Each test's database is a thousand files that are made and deleted. On a disk that takes a quarter of the processor time of the
// tests of package postgres.
func Memory() string {
	const directory = "/dev/shm"
	var files unix.Statfs_t
	if os.Getenv("TMPDIR") != "" || unix.Access(directory, unix.W_OK|unix.X_OK) != nil || unix.Statfs(directory, &files) != nil {
		return os.TempDir()
	}
	meminfo, _ := os.ReadFile("/proc/meminfo") // there may be none
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
