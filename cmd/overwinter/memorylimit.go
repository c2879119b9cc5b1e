package main

import (
	"io/fs"
	"math"
	"os"
	"path"
	"runtime/debug"
	"strconv"
	"strings"
)

// limitMemory sets the runtime's soft memory limit from the memory limit of the program's control
// group, such as that of a container, so that the collector runs more often near the limit and the
// kernel does not kill the program. Without it, garbage may take as much memory as live data.
// GOMEMLIMIT overrides it.
func limitMemory() {
	if os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	if limit, ok := groupLimit(os.DirFS("/")); ok {
		debug.SetMemoryLimit(memoryLimit(limit))
	}
}

// memoryLimit returns the runtime's limit for the limit of a control group. A tenth is reserved for
// memory that the runtime does not count: the program's code and the kernel's memory. heapReserve
// is added because the runtime counts it although it is not resident.
func memoryLimit(group int64) int64 { return group/10*9 + heapReserve }

// groupLimit returns the smallest memory limit of the program's control group and its parents, below
// the given root of the file system. It reads version 2 of the interface only.
func groupLimit(root fs.FS) (int64, bool) {
	groups, err := fs.ReadFile(root, "proc/self/cgroup")
	if err != nil {
		return 0, false
	}
	limit := int64(math.MaxInt64)
	for line := range strings.Lines(string(groups)) {
		group, ok := strings.CutPrefix(strings.TrimSpace(line), "0::")
		if !ok {
			continue
		}
		for at := path.Join("sys/fs/cgroup", path.Clean("/"+group)); strings.HasPrefix(at, "sys/fs/cgroup"); at = path.Dir(at) {
			text, err := fs.ReadFile(root, path.Join(at, "memory.max"))
			if err != nil {
				continue // the root group has no limit
			}
			if n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil { // otherwise the value is "max"
				limit = min(limit, n)
			}
		}
	}
	return limit, limit < math.MaxInt64
}
