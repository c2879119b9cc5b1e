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

// limitMemory has the program collect garbage more often when it nears the limit of its control group, such as that of a
// container, rather than be killed there: the collector alone would let as much garbage gather as there is in use. GOMEMLIMIT overrides it.
func limitMemory() {
	if os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	if limit, ok := groupLimit(os.DirFS("/")); ok {
		debug.SetMemoryLimit(memoryLimit(limit))
	}
}

// memoryLimit is the limit of the runtime within that of a control group. What it does not count is the program itself and what the kernel
// holds for it. What it counts and takes no memory is the reserve.
func memoryLimit(group int64) int64 { return group/10*9 + heapReserve }

// groupLimit is the smallest memory limit of the program's control group and of those that it is in, given the root of the file system;
// version 2 of the interface.
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
				continue // the root group has none
			}
			if n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil { // else "max"
				limit = min(limit, n)
			}
		}
	}
	return limit, limit < math.MaxInt64
}
