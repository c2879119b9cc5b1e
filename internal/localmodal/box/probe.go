package box

import (
	"context"
	"fmt"
	"os"
	"strings"
)

// UnsupportedError says that this machine, as it is set up, cannot isolate sandboxes.
type UnsupportedError struct {
	Missing []string // what is known to stand in the way, in words
	Cause   error    // what starting a sandbox said
}

func (e *UnsupportedError) Error() string {
	message := "sandboxes need user namespaces and overlayfs, which are not to be had here"
	if len(e.Missing) > 0 {
		message += ": " + strings.Join(e.Missing, "; ")
	}
	return fmt.Sprintf("%s (%v)", message, e.Cause)
}

func (e *UnsupportedError) Unwrap() error { return e.Cause }

const probeID = "probe"

// probe starts a box as any other would be started: the only honest test.
func (r *Runtime) probe(ctx context.Context) error {
	if err := r.Discard(probeID); err != nil { // of a start that was killed
		return err
	}
	b, err := r.Start(ctx, Spec{ID: probeID, Layers: []string{BaseLayer}})
	if err != nil {
		return &UnsupportedError{Missing: missing(), Cause: err}
	}
	b.Kill()
	return r.Discard(probeID)
}

// missing reads the switches that are usually to blame.
func missing() []string {
	var reasons []string
	for _, s := range []struct{ path, bad, reason string }{
		{"/proc/sys/user/max_user_namespaces", "0", "user namespaces are switched off (sysctl user.max_user_namespaces is 0)"},
		{"/proc/sys/kernel/unprivileged_userns_clone", "0", "user namespaces are for root only (sysctl kernel.unprivileged_userns_clone is 0)"},
		{"/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1", "AppArmor restricts user namespaces (sysctl kernel.apparmor_restrict_unprivileged_userns is 1)"},
	} {
		if b, err := os.ReadFile(s.path); err == nil && strings.TrimSpace(string(b)) == s.bad {
			reasons = append(reasons, s.reason)
		}
	}
	if _, err := os.Stat("/proc/self/ns/user"); err != nil {
		reasons = append(reasons, "the kernel has no user namespaces")
	}
	if b, err := os.ReadFile("/proc/filesystems"); err == nil && !strings.Contains(string(b), "\toverlay\n") {
		reasons = append(reasons, "the kernel has no overlayfs loaded (try: modprobe overlay)")
	}
	if _, err := os.Stat("/.dockerenv"); err == nil {
		reasons = append(reasons, "this looks like a Docker container, whose default seccomp profile forbids new namespaces (run it with --privileged)")
	}
	return reasons
}
