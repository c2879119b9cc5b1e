package drivertest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/overwinter-dev/overwinter/internal/sandbox"
)

// Escape is an attack of a hostile program in a sandbox.
type Escape string

// The attacks of the suite.
const (
	WritePrograms     Escape = "write the machine's programs (remount /usr)"
	WriteKernel       Escape = "write kernel settings (unmask /proc/sys)"
	BlindSnapshot     Escape = "keep running during a snapshot (mount over /proc)"
	TraceInit         Escape = "trace the sandbox's init (ptrace)"
	StealDescriptors  Escape = "take init's sockets (pidfd_getfd)"
	ReachDevices      Escape = "read the machine's disks (mknod)"
	ReachSockets      Escape = "connect to abstract sockets of the machine"
	ReachLoopback     Escape = "connect to the machine's loopback interface (by name, and by addresses inside IPv6)"
	ReachAddresses    Escape = "connect to the machine's other addresses"
	ReachPrivate      Escape = "connect to private addresses and to a cloud's metadata service"
	SendRaw           Escape = "send raw packets"
	OtherFamilies     Escape = "open sockets outside the network namespace (vsock and other families)"
	ReadThroughLink   Escape = "read the machine's files (swap symbolic links during a snapshot)"
	LeaveSetID        Escape = "leave a set-user-ID program on the machine"
	LeaveCapabilities Escape = "leave a program with capabilities on the machine"
	ReachKeys         Escape = "use the kernel keys of the server's user"
	ExhaustUserQuotas Escape = "exhaust the kernel quotas of the server's user (inotify, timers, message queues)"
	SeeProcesses      Escape = "see the machine's processes"
	SeeSandboxes      Escape = "see another sandbox's processes"
	ReadSandboxes     Escape = "read another sandbox's files"
)

// Escapes returns all attacks of the suite.
func Escapes() []Escape {
	var all []Escape
	for _, c := range escapeCases() {
		all = append(all, c.escape)
	}
	return all
}

// EscapeHarness is a provider on this machine whose sandboxes are attacked.
type EscapeHarness struct {
	Harness
	// Open are the escapes that the provider declares not to prevent.
	Open []Escape
	// Untested are those of Open that the suite does not try.
	Untested []Escape
	// DataDir is the directory in which the provider stores the files of sandboxes.
	DataDir string
}

func (h EscapeHarness) open(e Escape) bool { return slices.Contains(h.Open, e) }

// attacker is a bench with a sandbox in which attacks run.
type attacker struct {
	*bench
	harness EscapeHarness
	sb      *sandbox.Sandbox
}

type escapeCase struct {
	escape Escape
	try    func(t *testing.T, a *attacker) (escaped bool, how string)
	// harmful attacks change the machine if they succeed, so they are not tried if the provider
	// declares them as open.
	harmful bool
}

func escapeCases() []escapeCase {
	return []escapeCase{
		{WritePrograms, writePrograms, true},
		{WriteKernel, direct(WriteKernel), true},
		{BlindSnapshot, blindSnapshot, true},
		{TraceInit, direct(TraceInit), true},
		{StealDescriptors, direct(StealDescriptors), true},
		{ReachDevices, direct(ReachDevices), true},
		{ReachSockets, reachSockets, false},
		{ReachLoopback, reachLoopback, false},
		{ReachAddresses, reachAddresses, false},
		{ReachPrivate, direct(ReachPrivate), false},
		{SendRaw, direct(SendRaw), false},
		{OtherFamilies, direct(OtherFamilies), false},
		{ReadThroughLink, readThroughLink, false},
		{LeaveSetID, leaveSetID, false},
		{LeaveCapabilities, leaveCapabilities, false},
		{ReachKeys, reachKeys, true},
		{ExhaustUserQuotas, exhaustUserQuotas, true},
		{SeeProcesses, seeProcesses, false},
		{SeeSandboxes, seeSandboxes, false},
		{ReadSandboxes, readSandboxes, false},
	}
}

// RunEscapes attacks sandboxes of a provider on this machine. Attacks that it prevents must fail,
// and those that it declares not to prevent must succeed; otherwise the declaration is outdated.
// TestMain must call Attack first.
func RunEscapes(t *testing.T, harness func(t *testing.T) EscapeHarness) {
	t.Helper()
	image := attackImage(t, harness)
	for _, c := range escapeCases() {
		t.Run(string(c.escape), func(t *testing.T) {
			t.Parallel()
			h := harness(t)
			h.Image = image
			if h.open(c.escape) && (c.harmful || slices.Contains(h.Untested, c.escape)) {
				t.Log("not prevented, as declared; not tried")
				return
			}
			a := &attacker{bench: setup(t, func(*testing.T) Harness { return h.Harness }), harness: h}
			a.sb = a.sandbox(t)
			escaped, how := c.try(t, a)
			if h.open(c.escape) {
				require.True(t, escaped, "the provider declares that it does not prevent this, but it does: %s", how)
				t.Logf("not prevented, as declared: %s", how)
				return
			}
			require.False(t, escaped, "escaped: %s", how)
			t.Logf("prevented: %s", how)
		})
	}
}

// writePrograms succeeds if a file that the sandbox has written is visible on the machine. A
// sandbox may have its own view of /usr.
func writePrograms(t *testing.T, a *attacker) (bool, string) {
	t.Helper()
	_, how := a.attack(t, WritePrograms)
	found, err := filepath.Glob(writtenProgram + "*")
	require.NoError(t, err)
	for _, path := range found {
		require.NoError(t, os.Remove(path))
	}
	return len(found) > 0, how
}

// writtenProgram begins the names of files that an attack creates.
const writtenProgram = "/usr/.overwinter-escape-"

// attackImage returns an image that contains this test binary.
func attackImage(t *testing.T, harness func(t *testing.T) EscapeHarness) string {
	t.Helper()
	program, err := os.ReadFile("/proc/self/exe")
	require.NoError(t, err)
	h := harness(t)
	b := setup(t, func(*testing.T) Harness { return h.Harness })
	sb := b.sandbox(t)
	require.NoError(t, sb.WriteFile(b.ctx(t), attackProgram, program, 0o755))
	return b.snapshot(t, sb)
}

// attackProgram is the path of the test binary in a sandbox.
const attackProgram = "/root/attack"

// attack runs one of Attack's attacks in the sandbox.
func (a *attacker) attack(t *testing.T, e Escape, args ...string) (escaped bool, how string) {
	t.Helper()
	res, err := a.sb.Run(a.ctx(t), sandbox.RunSpec{Argv: append([]string{attackProgram, attackWord, string(e)}, args...)})
	require.NoError(t, err)
	how = strings.TrimSpace(string(res.Stdout) + string(res.Stderr))
	switch res.Code {
	case attackEscaped:
		return true, how
	case attackHeld:
		return false, how
	default:
		require.FailNow(t, "the attack could not be carried out", "%s: code %d: %s", e, res.Code, how)
		return false, ""
	}
}

// direct returns an attack that needs nothing outside of the sandbox.
func direct(e Escape) func(t *testing.T, a *attacker) (bool, string) {
	return func(t *testing.T, a *attacker) (bool, string) {
		t.Helper()
		var root unix.Stat_t
		require.NoError(t, unix.Stat("/", &root))
		return a.attack(t, e, fmt.Sprint(root.Dev))
	}
}

// exhaustUserQuotas passes the limits of the server's user to the attack.
func exhaustUserQuotas(t *testing.T, a *attacker) (bool, string) {
	t.Helper()
	var args []string
	b, err := os.ReadFile("/proc/sys/fs/inotify/max_user_instances")
	require.NoError(t, err)
	args = append(args, strings.TrimSpace(string(b)))
	for _, resource := range []int{unix.RLIMIT_SIGPENDING, unix.RLIMIT_MSGQUEUE} {
		var limit unix.Rlimit
		require.NoError(t, unix.Getrlimit(resource, &limit))
		args = append(args, fmt.Sprint(limit.Cur))
	}
	return a.attack(t, ExhaustUserQuotas, args...)
}

// reachSockets listens on an abstract socket of the machine.
func reachSockets(t *testing.T, a *attacker) (bool, string) {
	t.Helper()
	name := "@overwinter-escape-" + uuid.NewString()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", name)
	require.NoError(t, err)
	defer listener.Close()
	return a.attack(t, ReachSockets, name)
}

// greet listens on an address of the machine and greets every client.
func greet(t *testing.T, address, word string) (port string) {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", address)
	require.NoError(t, err)
	done := make(chan struct{})
	t.Cleanup(func() {
		require.NoError(t, listener.Close())
		<-done
	})
	go func() {
		defer close(done)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Write([]byte(word))
			_ = conn.Close()
		}
	}()
	_, port, err = net.SplitHostPort(listener.Addr().String())
	require.NoError(t, err)
	return port
}

// reachLoopback listens on the machine's loopback interface.
func reachLoopback(t *testing.T, a *attacker) (bool, string) {
	t.Helper()
	word := uuid.NewString()
	port := greet(t, "127.0.0.1:0", word)
	args := []string{word}
	for _, host := range []string{
		"127.0.0.1", "localhost", "0.0.0.0", "127.1.2.3", "::ffff:127.0.0.1", "::127.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::",
		"host.overwinter.internal", "192.168.127.254", "192.168.127.1",
	} {
		args = append(args, net.JoinHostPort(host, port))
	}
	if l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "[::1]:0"); err == nil {
		require.NoError(t, l.Close())
		args = append(args, net.JoinHostPort("::1", greet(t, "[::1]:0", word)))
	}
	return a.attack(t, ReachLoopback, args...)
}

// reachAddresses listens on every address of the machine.
func reachAddresses(t *testing.T, a *attacker) (bool, string) {
	t.Helper()
	word := uuid.NewString()
	port := greet(t, ":0", word)
	args := []string{word}
	addresses, err := net.InterfaceAddrs()
	require.NoError(t, err)
	for _, address := range addresses {
		if n, ok := address.(*net.IPNet); ok && n.IP.IsGlobalUnicast() {
			args = append(args, net.JoinHostPort(n.IP.String(), port))
		}
	}
	if len(args) == 1 {
		return a.harness.open(ReachAddresses), "the machine has no other address"
	}
	return a.attack(t, ReachAddresses, args...)
}

// secret creates a file on the machine that no sandbox may read, although every user may.
func secret(t *testing.T) (path, content string) {
	t.Helper()
	path, content = filepath.Join(t.TempDir(), "secret"), "secret-"+uuid.NewString()
	require.NoError(t, os.WriteFile(path, []byte(content), 0o644))
	return path, content
}

// readThroughLink replaces files and directories by links to a file of the machine while snapshots
// are taken, and looks for its content in the restored files.
func readThroughLink(t *testing.T, a *attacker) (bool, string) {
	t.Helper()
	path, content := secret(t)
	a.background(t, a.sb, []string{attackProgram, attackWord, string(ReadThroughLink), path})
	require.Eventually(t, func() bool {
		_, err := a.sb.ReadFile(t.Context(), "/root/swapping")
		return err == nil
	}, a.WaitLimit, 20*time.Millisecond)
	for range 5 {
		image, err := a.sb.Snapshot(a.ctx(t), sandbox.SnapshotSpec{})
		require.NoError(t, err)
		spec := a.spec()
		spec.Image = image
		restored := a.create(t, spec)
		// Links have no target here, so any content was copied.
		res, err := restored.Run(a.ctx(t), sandbox.RunSpec{Argv: []string{"grep", "-r", "-l", content, "/root/swap"}})
		require.NoError(t, err)
		if res.Code == 0 {
			return true, "a snapshot holds the machine's file: " + string(res.Stdout)
		}
		require.NoError(t, restored.Terminate(a.ctx(t)))
		a.deleteAfter(t, image)
	}
	return false, "no snapshot held the machine's file"
}

// blindSnapshot hides /proc from readers inside the sandbox, and writes two files in turn: in a
// consistent snapshot they differ by at most one.
func blindSnapshot(t *testing.T, a *attacker) (bool, string) {
	t.Helper()
	_, how := a.attack(t, BlindSnapshot)
	tick := append([]string{"setsid"}, a.Commands.Tick("/root/a", "/root/b")...)
	a.background(t, a.sb, tick)
	number := func(sb *sandbox.Sandbox, path string) (n int) {
		data, err := sb.ReadFile(t.Context(), path)
		if err == nil {
			_, _ = fmt.Sscan(string(data), &n)
		}
		return n
	}
	for range 5 {
		before := number(a.sb, "/root/b")
		require.Eventually(t, func() bool { return number(a.sb, "/root/b") > before }, a.WaitLimit, time.Millisecond)
		image := a.snapshot(t, a.sb)
		spec := a.spec()
		spec.Image = image
		restored := a.create(t, spec)
		x, y := number(restored, "/root/a"), number(restored, "/root/b")
		// A file is empty for a moment while it is being written.
		if x != 0 && y != 0 && (y > x || x-y > 1) {
			return true, fmt.Sprintf("a snapshot holds two moments: %d, %d (%s)", x, y, how)
		}
		require.NoError(t, restored.Terminate(a.ctx(t)))
	}
	return false, "snapshots are of one moment (" + how + ")"
}

// leaveSetID creates a set-user-ID program and checks whether another user of the machine could run
// it.
func leaveSetID(t *testing.T, a *attacker) (bool, string) {
	t.Helper()
	name := "setid-" + uuid.NewString()
	a.run(t, a.sb, []string{"sh", "-c", "cp /usr/bin/id /root/" + name + " && chmod 4755 /root/" + name})
	a.snapshot(t, a.sb)
	found := a.find(t, name)
	require.NotEmpty(t, found)
	for _, path := range found {
		info, err := os.Lstat(path)
		require.NoError(t, err)
		st, ok := info.Sys().(*syscall.Stat_t)
		require.True(t, ok)
		if info.Mode()&fs.ModeSetuid != 0 && int(st.Uid) == os.Geteuid() && reachable(path) {
			return true, path + " is a set-user-ID program that others can reach"
		}
		if info.Mode()&fs.ModeSetuid != 0 && st.Uid == 0 && os.Geteuid() == 0 {
			return true, path + " is a set-user-ID program of root's"
		}
	}
	return false, "the remaining files have no owner, or other users cannot access them"
}

// reachable reports whether another user could access the path.
func reachable(path string) bool {
	for dir := filepath.Dir(path); dir != "/"; dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		if err != nil || info.Mode().Perm()&0o001 == 0 {
			return false
		}
	}
	return true
}

// leaveCapabilities gives a program capabilities and checks their effect outside.
func leaveCapabilities(t *testing.T, a *attacker) (bool, string) {
	t.Helper()
	name := "caps-" + uuid.NewString()
	a.run(t, a.sb, []string{"cp", "/usr/bin/id", "/root/" + name})
	if set, how := a.attack(t, LeaveCapabilities, "/root/"+name); !set {
		return false, how
	}
	a.snapshot(t, a.sb)
	for _, path := range a.find(t, name) {
		value := make([]byte, 64)
		n, err := unix.Lgetxattr(path, "security.capability", value)
		if errors.Is(err, unix.ENODATA) {
			continue
		}
		require.NoError(t, err)
		// On the machine, an effective capability is reported as version 2.
		if value = value[:n]; len(value) < 24 || binary.LittleEndian.Uint32(value[20:]) == 0 {
			return true, fmt.Sprintf("%s has capabilities on the machine: %x", path, value)
		}
	}
	return false, "they are valid only in the sandbox's user namespace, or were removed"
}

// find returns the files with that name below the data directory.
func (a *attacker) find(t *testing.T, name string) []string {
	t.Helper()
	var found []string
	require.NoError(t, filepath.WalkDir(a.harness.DataDir, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Name() == name {
			found = append(found, path)
		}
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
			return nil
		}
		return err
	}))
	return found
}

// reachKeys adds a key to this process's session keyring.
func reachKeys(t *testing.T, a *attacker) (bool, string) {
	t.Helper()
	name := "overwinter-escape-" + uuid.NewString()
	id, err := unix.AddKey("user", name, []byte("a secret"), unix.KEY_SPEC_SESSION_KEYRING)
	if err != nil {
		return false, "the machine has no keyrings: " + err.Error()
	}
	defer func() { _, _ = unix.KeyctlInt(unix.KEYCTL_UNLINK, id, unix.KEY_SPEC_SESSION_KEYRING, 0, 0) }()
	return a.attack(t, ReachKeys, name, fmt.Sprint(id))
}

// seeProcesses runs a process on the machine with a unique name.
func seeProcesses(t *testing.T, a *attacker) (bool, string) {
	t.Helper()
	name := "overwinter-escape-" + uuid.NewString()
	cmd := exec.CommandContext(t.Context(), "sleep", "1000")
	cmd.Args[0] = name
	require.NoError(t, cmd.Start())
	defer func() { _ = cmd.Wait() }()
	defer func() { _ = cmd.Process.Kill() }()
	return a.attack(t, SeeProcesses, name)
}

// neighbor is another sandbox with a process and a file that have unique names.
func (a *attacker) neighbor(t *testing.T) (name string) {
	t.Helper()
	name = "overwinter-escape-" + uuid.NewString()
	other := a.sandbox(t)
	require.NoError(t, other.WriteFile(a.ctx(t), "/root/"+name, []byte("a secret"), 0o600))
	script := fmt.Sprintf("cp /usr/bin/sleep /tmp/%s && exec /tmp/%s 1000", name, name)
	a.background(t, other, []string{"sh", "-c", script})
	pattern := "[o]" + strings.TrimPrefix(name, "o") // so that grep's own arguments do not match
	require.Eventually(t, func() bool {
		res, err := other.Run(a.ctx(t), sandbox.RunSpec{Argv: []string{"sh", "-c", "grep -qs '^/tmp/" + pattern + "' /proc/[0-9]*/cmdline"}})
		return err == nil && res.Code == 0
	}, a.WaitLimit, 20*time.Millisecond, "the neighbor's process runs")
	return name
}

// background starts a process that ends with its sandbox.
func (a *attacker) background(t *testing.T, sb *sandbox.Sandbox, argv []string) {
	t.Helper()
	p, err := sb.Exec(a.ctx(t), sandbox.ExecSpec{Argv: argv})
	require.NoError(t, err)
	require.NoError(t, p.Close())
}

func seeSandboxes(t *testing.T, a *attacker) (bool, string) {
	t.Helper()
	return a.attack(t, SeeSandboxes, a.neighbor(t))
}

func readSandboxes(t *testing.T, a *attacker) (bool, string) {
	t.Helper()
	return a.attack(t, ReadSandboxes, a.neighbor(t))
}
