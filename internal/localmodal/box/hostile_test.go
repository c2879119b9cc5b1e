package box

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/overwinter-dev/overwinter/internal/memorytest"
)

// uidOf returns the user id of a process of this machine whose command line contains text.
func uidOf(t *testing.T, text string) (uid int) {
	t.Helper()
	require.Eventually(t, func() bool { // a process that executes a program has no command line for a moment
		dirs, _ := filepath.Glob("/proc/[0-9]*") // fails only on a bad pattern
		for _, dir := range dirs {
			line, err := os.ReadFile(filepath.Join(dir, "cmdline"))
			if err != nil || !strings.Contains(string(line), text) {
				continue
			}
			status, _ := os.ReadFile(filepath.Join(dir, "status")) // empty if it has ended
			for line := range strings.Lines(string(status)) {
				if fields := strings.Fields(line); len(fields) > 1 && fields[0] == "Uid:" {
					uid, err = strconv.Atoi(fields[1])
					return err == nil
				}
			}
		}
		return false
	}, waitLimit, 10*time.Millisecond, "no such process: %s", text)
	return uid
}

// Init runs as the sandbox's root user. Processes of that user could signal it and set its limits.
func TestNoProcessOfSandboxDisturbsItsInit(t *testing.T) {
	t.Parallel()
	b := setup(t, Options{Isolation: Namespaces})
	bx := b.start()
	b.sh(bx, "perl -e 'for (1..64) { kill $_, 1 }'")
	require.Contains(t, b.sh(bx, "for t in $(seq 1 20); do prlimit --pid $t --nofile=3:3 2>&1; done; true"), "Operation not permitted")
	require.Equal(t, "7\n", b.sh(bx, "prlimit --pid 1 --nofile >/dev/null && ulimit -n 7 && ulimit -n"), "others can be read, and a process's own set")
	b.snapshot(bx)
	require.Equal(t, "on\n", b.sh(bx, "sleep 0.1; echo on"))
}

// The files of init in /proc belong to the root of its user namespace, who is also the sandbox's
// root: one of them could make the kernel kill init first when memory is short.
func TestInitIsOutOfSightInSandbox(t *testing.T) {
	t.Parallel()
	b := setup(t, Options{Isolation: Namespaces})
	bx := b.start()
	adjustment := func() string {
		text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(bx.PID()), "oom_score_adj"))
		require.NoError(t, err)
		return strings.TrimSpace(string(text))
	}
	before := adjustment()
	tasks, err := os.ReadDir(filepath.Join("/proc", strconv.Itoa(bx.PID()), "task"))
	require.NoError(t, err)
	require.Greater(t, len(tasks), 1, "each thread can be found by its ID, whether it is listed or not")
	b.sh(bx, "for t in $(seq 1 40); do for f in /proc/$t /proc/1/task/$t; do test -e $f/comm && grep -q sandbox-init $f/cmdline && echo 777 > $f/oom_score_adj; done; done 2>/dev/null; true")
	require.Equal(t, before, adjustment())
	require.Equal(t, "hidden\n", b.sh(bx, "test -e /proc/1 || echo hidden"))
	// A process sees the processes of its sandbox that it could trace: root all of them, others
	// their own.
	require.Equal(t, "123\n", b.sh(bx, "sleep 60 & echo 123 > /proc/$!/oom_score_adj; cat /proc/$!/oom_score_adj; kill $!"))
	require.Equal(t, "sleep\n", b.sh(bx, "sleep 60 & until grep -qx sleep /proc/$!/comm; do :; done; cat /proc/[0-9]*/comm | grep -x sleep; kill $!"))
	b.snapshot(bx)
	require.Equal(t, "on\n", b.sh(bx, "echo on"))
}

// A process of a sandbox has all capabilities in a network namespace that it creates.
func TestOwnNetworkNamespaceReachesLittleOfKernel(t *testing.T) {
	t.Parallel()
	b := setup(t, Options{Isolation: Namespaces})
	bx := b.start()
	const reach = `
import errno, socket
def attempt(what, do):
    try: do(); print(what, "ok")
    except OSError as e: print(what, errno.errorcode[e.errno])
for name, protocol in dict(route=0, diag=4, xfrm=6, connector=11, netfilter=12, uevent=15, generic=16, crypto=21).items():
    attempt(name, lambda: socket.socket(16, socket.SOCK_RAW, protocol))
four, six = socket.socket(2, socket.SOCK_RAW, 255), socket.socket(10, socket.SOCK_RAW, 255)
attempt("iptables", lambda: four.setsockopt(0, 64, b"x" * 100))
attempt("iptables read", lambda: four.getsockopt(0, 64, 84))
attempt("arptables", lambda: four.setsockopt(0, 96, b"x" * 100))
attempt("ebtables", lambda: four.setsockopt(0, 128, b"x" * 100))
attempt("ip6tables", lambda: six.setsockopt(41, 64, b"x" * 100))
attempt("traffic class", lambda: six.setsockopt(41, 67, 1))
attempt("TTL", lambda: four.setsockopt(0, 2, 9))
attempt("path MTU", lambda: four.setsockopt(0, 10, 0))
attempt("loopback", lambda: __import__("fcntl").ioctl(four, 0x8914, b"lo".ljust(16, bytes(1)) + bytes([1]).ljust(24, bytes(1))))
`
	want := "route ok\ndiag ok\nxfrm EPROTONOSUPPORT\nconnector EPROTONOSUPPORT\nnetfilter EPROTONOSUPPORT\nuevent ok\n" +
		"generic EPROTONOSUPPORT\ncrypto EPROTONOSUPPORT\niptables EPERM\niptables read EPERM\narptables EPERM\nebtables EPERM\n" +
		"ip6tables EPERM\ntraffic class ok\nTTL ok\npath MTU ok\nloopback ok\n"
	for _, command := range []string{"unshare -n", "unshare -Urn"} {
		require.Equal(t, want, b.sh(bx, command+" python3 -c '"+reach+"'"), command)
	}
	// Namespaces as used by the sandboxes of programs.
	require.Equal(t, "ok\n", b.sh(bx, "unshare -Urmpfn sh -c 'mount --rbind /usr /mnt && mount -t tmpfs x /opt && echo ok'"))
}

// TestCopyIsConfinedDespiteSwappedLinks copies a tree in which files and directories are
// concurrently replaced by links that lead out of it, as if the box were not frozen.
func TestCopyIsConfinedDespiteSwappedLinks(t *testing.T) {
	t.Parallel()
	outside, tree := memorytest.Dir(t), filepath.Join(memorytest.Dir(t), "tree")
	secret := []byte("a file of the machine's")
	require.NoError(t, os.WriteFile(filepath.Join(outside, "f"), secret, 0o600))
	require.NoError(t, os.MkdirAll(filepath.Join(tree, "d"), 0o755))
	const names = 20
	for i := range names {
		n := strconv.Itoa(i)
		require.NoError(t, os.WriteFile(filepath.Join(tree, "f"+n), []byte("mine"), 0o600))
		require.NoError(t, os.Symlink(filepath.Join(outside, "f"), filepath.Join(tree, "fl"+n)))
		require.NoError(t, os.Mkdir(filepath.Join(tree, "d"+n), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(tree, "d"+n, "f"), []byte("mine"), 0o600))
		require.NoError(t, os.Symlink(outside, filepath.Join(tree, "dl"+n)))
	}
	before, err := os.Stat(outside)
	require.NoError(t, err)

	stop := make(chan struct{})
	var swapping sync.WaitGroup
	swapping.Go(func() {
		for {
			for i := range names {
				select {
				case <-stop:
					return
				default:
				}
				n := strconv.Itoa(i)
				for _, pair := range [][2]string{{"f" + n, "fl" + n}, {"d" + n, "dl" + n}} {
					_ = unix.Renameat2(unix.AT_FDCWD, filepath.Join(tree, pair[0]), unix.AT_FDCWD, filepath.Join(tree, pair[1]), unix.RENAME_EXCHANGE)
				}
			}
		}
	})
	defer swapping.Wait()
	defer close(stop)

	for range 200 {
		dst := filepath.Join(memorytest.Dir(t), "copy")
		err := newCopier(nil, nil, same).copyTree(t.Context(), tree, dst)
		if err != nil { // a name that is missing for a moment; nothing was copied for it
			require.True(t, errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrExist), "%v", err)
		}
		require.NoError(t, filepath.WalkDir(dst, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || !entry.Type().IsRegular() {
				return err
			}
			content, err := os.ReadFile(path)
			require.False(t, bytes.Contains(content, secret), "%s holds a file from outside", path)
			return err
		}))
	}
	after, err := os.Stat(outside)
	require.NoError(t, err)
	require.Equal(t, before.Mode(), after.Mode(), "nothing outside was unlocked")
}
