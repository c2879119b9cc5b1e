package box

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
)

// Refusal is a way to isolate sandboxes that this machine's configuration does not allow.
type Refusal struct {
	Isolation Isolation
	Copies    bool
	Missing   []string // known reasons, as text
	Cause     error    // error of starting a sandbox
}

func (f Refusal) String() string {
	way := string(f.Isolation)
	switch {
	case f.Isolation != Namespaces:
	case f.Copies:
		way += " over copied files"
	default:
		way += " over overlayfs"
	}
	if len(f.Missing) > 0 {
		return fmt.Sprintf("%s: %s (%v)", way, strings.Join(f.Missing, "; "), f.Cause)
	}
	return fmt.Sprintf("%s: %v", way, f.Cause)
}

// UnsupportedError reports that this machine's configuration does not allow sandboxes, or not at
// the requested level.
type UnsupportedError struct {
	Isolation Isolation // requested level
	Refusals  []Refusal // one for each way that was tried
	Remedies  []string  // commands that may help
}

func (e *UnsupportedError) Error() string {
	var b strings.Builder
	if e.Isolation == Auto {
		b.WriteString("this machine does not let sandboxes have namespaces, without which nothing keeps an agent away from your files")
	} else {
		fmt.Fprintf(&b, "isolation %q does not work on this machine", e.Isolation)
	}
	for _, remedy := range e.Remedies {
		b.WriteString("; run: " + remedy)
	}
	if e.Isolation == Auto {
		b.WriteString("; or choose a weaker level yourself with --isolation chroot or --isolation directory, for agents that you trust with your account")
	}
	for _, r := range e.Refusals {
		b.WriteString("; " + r.String())
	}
	return b.String()
}

// Unwrap returns the errors of starting a sandbox.
func (e *UnsupportedError) Unwrap() []error {
	causes := make([]error, 0, len(e.Refusals))
	for _, r := range e.Refusals {
		causes = append(causes, r.Cause)
	}
	return causes
}

// ways returns the ways to isolate sandboxes, best first, within the request.
func (r *Runtime) ways() []Refusal {
	all := []Refusal{{Isolation: Namespaces}, {Isolation: Namespaces, Copies: true}}
	for _, level := range Levels()[1:] {
		if r.isolation == Auto && r.container == "" {
			break // not a boundary: only used if a person chooses it
		}
		all = append(all, Refusal{Isolation: level, Copies: true})
	}
	var asked []Refusal
	for _, w := range all {
		if (r.isolation == Auto || r.isolation == w.Isolation) && (w.Copies || !r.copies) {
			asked = append(asked, w)
		}
	}
	return asked
}

// probe selects the first way that works.
func (r *Runtime) probe(ctx context.Context) error {
	unsupported := &UnsupportedError{Isolation: r.isolation}
	for _, w := range r.ways() {
		r.isolation, r.copies = w.Isolation, w.Copies
		err := r.try(ctx)
		if err == nil {
			r.better = unsupported.Refusals
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		w.Cause = err
		var remedies []string
		w.Missing, remedies = missing(w)
		if _, ok := errors.AsType[*networkError](err); ok {
			w.Missing, remedies = []string{"no network device can be created"}, networkRemedies
		}
		if errors.Is(err, fs.ErrPermission) && os.Geteuid() == 0 {
			w.Missing = append(w.Missing, notExecutable()...)
		}
		unsupported.Refusals = append(unsupported.Refusals, w)
		for _, remedy := range remedies {
			if !slices.Contains(unsupported.Remedies, remedy) {
				unsupported.Remedies = append(unsupported.Remedies, remedy)
			}
		}
	}
	return unsupported
}

const probeID = "probe"

// try determines whether boxes can be started, and with which network.
func (r *Runtime) try(ctx context.Context) error {
	r.ownNetwork = r.isolation == Namespaces && r.networkMode != SharedNetwork
	err := r.tryBox(ctx)
	if err == nil && !r.ownNetwork && r.networkMode == OwnedNetwork {
		return &LackError{Isolation: r.isolation, Lack: sharedNetwork}
	}
	if err == nil || !r.ownNetwork {
		return err
	}
	r.ownNetwork = false
	if r.tryBox(ctx) != nil {
		return err // the network is not the cause
	}
	if r.networkMode == AutoNetwork && r.container != "" {
		r.networkCause = err
		return nil
	}
	return &networkError{err}
}

// tryBox starts a box like any other, which is the only reliable test.
func (r *Runtime) tryBox(ctx context.Context) error {
	if r.isolation == Namespaces && r.idsErr != nil {
		return r.idsErr // root's own ids would provide no boundary
	}
	if err := r.Discard(probeID); err != nil { // left by a start that was killed
		return err
	}
	if r.copies {
		if err := probeWhiteouts(r.buildPlace()); err != nil {
			return err
		}
	}
	b, err := r.Start(ctx, Spec{ID: probeID, Layers: []string{BaseLayer}})
	if err != nil {
		return err
	}
	defer b.Kill()
	return b.try()
}

// missing checks the usual causes and returns their remedies.
func missing(w Refusal) (reasons, remedies []string) {
	switch {
	case w.Isolation == Directory:
		return traceMissing(), nil
	case w.Isolation == Chroot && os.Geteuid() == 0:
		return nil, nil // needs no user namespace, and the cause names the operation that root may not perform
	}
	for _, s := range switches {
		if b, err := os.ReadFile(s.path); err == nil && strings.TrimSpace(string(b)) == s.bad {
			reasons, remedies = append(reasons, s.reason), append(remedies, s.remedy())
		}
	}
	if _, err := os.Stat("/proc/self/ns/user"); err != nil {
		reasons = append(reasons, "the kernel has no user namespaces")
	}
	if b, err := os.ReadFile("/proc/filesystems"); err == nil && !w.Copies && !strings.Contains(string(b), "\toverlay\n") {
		reasons, remedies = append(reasons, "the kernel has no overlayfs loaded"), append(remedies, "sudo modprobe overlay")
	}
	if container := detectContainer(); container != "" {
		reasons = append(reasons, "this is a container ("+container+"), whose seccomp profile may forbid new namespaces (Docker: run it with --privileged)")
	}
	return reasons, remedies
}

// switches are the settings with which a machine denies namespaces to its users.
var switches = []struct {
	path, bad, reason string
	remedy            func() string
}{
	{
		"/proc/sys/user/max_user_namespaces", "0", "user namespaces are switched off (sysctl user.max_user_namespaces is 0)",
		func() string { return "sudo sysctl -w user.max_user_namespaces=15000" },
	},
	{
		"/proc/sys/kernel/unprivileged_userns_clone", "0", "user namespaces are for root only (sysctl kernel.unprivileged_userns_clone is 0)",
		func() string { return "sudo sysctl -w kernel.unprivileged_userns_clone=1" },
	},
	{
		"/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1",
		"AppArmor restricts user namespaces (sysctl kernel.apparmor_restrict_unprivileged_userns is 1)", appArmorProfile,
	},
}

// appArmorProfile returns a profile that allows only this program to create user namespaces.
func appArmorProfile() string {
	program, err := os.Executable()
	if err != nil {
		return "sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"
	}
	return fmt.Sprintf(`printf 'abi <abi/4.0>,\ninclude <tunables/global>\nprofile overwinter "%s" flags=(unconfined) {\n  userns,\n}\n' | `+
		"sudo tee /etc/apparmor.d/overwinter && sudo apparmor_parser -r /etc/apparmor.d/overwinter", program)
}

// notExecutable reports whether sandboxes, whose root has no rights here, cannot execute init.
func notExecutable() []string {
	program, err := os.Executable()
	if err != nil {
		return nil
	}
	info, err := os.Stat(program)
	if err != nil || info.Mode()&0o001 != 0 {
		return nil
	}
	return []string{fmt.Sprintf("sandboxes may not execute %s (run: chmod a+rx %s)", program, program)}
}

// traceMissing returns the reasons for a level that only needs permission to trace its own
// children.
func traceMissing() []string {
	b, err := os.ReadFile("/proc/sys/kernel/yama/ptrace_scope")
	if err == nil && (strings.TrimSpace(string(b)) == "2" || strings.TrimSpace(string(b)) == "3") {
		return []string{"processes may not trace each other (sysctl kernel.yama.ptrace_scope is " + strings.TrimSpace(string(b)) + ")"}
	}
	return nil
}

// networkRemedies are commands that may help if no device can be created.
var networkRemedies = []string{
	"sudo modprobe -a tun veth (or let sandboxes use the machine's network with --sandbox-network shared)",
}
