package boxinit

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"
)

// kept are the capabilities of a sandbox's root without a separate user namespace: power over its
// files and low ports. It is the machine's root there. With CAP_SETUID or CAP_SETGID it could
// become a user whose processes it may inspect; with CAP_DAC_OVERRIDE and CAP_KILL it could access
// that user's files and processes; and the capabilities of files would be valid on the machine.
var kept = []uintptr{unix.CAP_CHOWN, unix.CAP_FOWNER, unix.CAP_FSETID, unix.CAP_NET_BIND_SERVICE}

// dropCapabilities removes all other capabilities from the programs that this thread executes.
func dropCapabilities() error {
	for c := uintptr(0); c <= unix.CAP_LAST_CAP; c++ {
		if slices.Contains(kept, c) {
			continue
		}
		// The kernel may be older than the list.
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); err != nil && !errors.Is(err, unix.EINVAL) {
			return fmt.Errorf("drop capability %d: %w", c, err)
		}
	}
	return nil
}
