package boxinit

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// kernelObjects is the directory with the limits of a user namespace.
const kernelObjects = "/proc/sys/user"

// objectLimit bounds the number of kernel objects of one kind for a sandbox.
type objectLimit struct {
	name string
	most int
	// of names the machine's limit for one user, which includes the objects of the sandbox. The
	// sandbox gets a share of it.
	of    string
	share int
}

// objectLimits apply to a whole sandbox, including nested namespaces.
var objectLimits = []objectLimit{
	{name: "max_inotify_instances", most: 32, of: "/proc/sys/fs/inotify/max_user_instances", share: 4},
	{name: "max_inotify_watches", most: 1 << 20, of: "/proc/sys/fs/inotify/max_user_watches", share: 2},
	{name: "max_fanotify_groups", most: 32, of: "/proc/sys/fs/fanotify/max_user_groups", share: 4},
	{name: "max_fanotify_marks", most: 1 << 20, of: "/proc/sys/fs/fanotify/max_user_marks", share: 2},
	// Each takes kernel memory that only control groups count.
	{name: "max_user_namespaces", most: 256},
	{name: "max_mnt_namespaces", most: 256},
	{name: "max_pid_namespaces", most: 256},
	{name: "max_uts_namespaces", most: 256},
	{name: "max_ipc_namespaces", most: 256},
	{name: "max_cgroup_namespaces", most: 256},
	{name: "max_time_namespaces", most: 256},
	{name: "max_net_namespaces", most: 64},
}

// limitObjects sets the limits of init's user namespace, which include the inner one. It needs a
// /proc that is not masked yet.
func limitObjects() error {
	for _, l := range objectLimits {
		value := l.most
		if l.of != "" {
			value = min(value, shareOf(l.of, l.share, value))
		}
		err := os.WriteFile(filepath.Join(kernelObjects, l.name), []byte(strconv.Itoa(value)), 0)
		if err != nil && !errors.Is(err, unix.ENOENT) { // depends on how the kernel was built
			return fmt.Errorf("limit kernel objects: %w", err)
		}
	}
	return nil
}

// shareOf returns a share of the limit in a file, at least 8; fallback if the file cannot be read.
func shareOf(file string, share, fallback int) int {
	b, err := os.ReadFile(file)
	if err != nil {
		return fallback
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		return fallback
	}
	return max(8, n/share)
}
