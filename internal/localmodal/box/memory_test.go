package box

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/localmodal/wire"
	"github.com/overwinter-dev/overwinter/internal/memorytest"
)

// hideMemory are ways to take 200 MiB in files that no process has mapped.
var hideMemory = map[string]string{
	"one memfd": `python3 -c '
import os, time
f = os.memfd_create("x")
for _ in range(200): os.write(f, bytes(1 << 20))
time.sleep(1000)'`,
	"many memfds": `python3 -c '
import os, time
for _ in range(200): os.write(os.memfd_create("x"), bytes(1 << 20))
time.sleep(1000)'`,
}

// hideInMounts are the ways that need mounts.
var hideInMounts = map[string]string{
	"a tmpfs":                        `mount -t tmpfs x /mnt && head -c 200M /dev/zero >/mnt/f; sleep 1000`,
	"a tmpfs in other namespaces":    `unshare -Urm sh -c 'mount -t tmpfs x /mnt && head -c 200M /dev/zero >/mnt/f; sleep 1000'`,
	"eight":                          `for i in 1 2 3 4 5 6 7 8; do mkdir "/tmp/m $i"; mount -t tmpfs -o size=25m x "/tmp/m $i"; head -c 25M /dev/zero >"/tmp/m $i/f"; done; sleep 1000`,
	"a file without a name":          `mount -t tmpfs x /mnt && exec 3>/mnt/f && rm /mnt/f && head -c 200M /dev/zero >&3; sleep 1000`,
	"an open tmpfs without a mount":  `mount -t tmpfs x /mnt && exec 3</mnt && head -c 200M /dev/zero >/mnt/f; umount -l /mnt; sleep 1000`,
	"a directory without a mount":    `mount -t tmpfs x /mnt && head -c 200M /dev/zero >/mnt/f; cd /mnt; umount -l /mnt; sleep 1000`,
	"many empty files":               `mount -t tmpfs -o nr_inodes=1m x /mnt && cd /mnt && seq 1 200000 | xargs touch; sleep 1000`,
	"a tmpfs without a size":         `mount -t tmpfs -o size=0 x /mnt; sleep 1000`,
	"a tmpfs that has lost its size": `mount -t tmpfs -o size=1m x /mnt; python3 -c 'import ctypes; ctypes.CDLL(None).mount(b"x", b"/mnt", b"tmpfs", 32, b"size=0")'; sleep 1000`,
	"a tmpfs with any files":         `mount -t tmpfs -o nr_inodes=0 x /mnt; sleep 1000`,
	"a ramfs":                        `mount -t ramfs x /mnt; sleep 1000`,
}

func TestSandboxIsEndedWhoseFilesInMemoryExceedItsMemory(t *testing.T) {
	t.Parallel()
	for way, o := range ways {
		if way == "copies" {
			continue // the files in memory belong to the overlay
		}
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			o.Limits, o.noCgroups = Limits{Memory: leastMemory}, true
			b := setup(t, o)
			other := b.start()
			// The rest of the memory, mapped, counts once.
			b.run(other, `python3 -c '
import mmap, os, time
f = os.memfd_create("x")
os.ftruncate(f, 64 << 20)
m = mmap.mmap(f, 64 << 20)
for _ in range(64): m.write(bytes(1 << 20))
for _ in range(3):
    if not os.fork(): sum(m[i] for i in range(0, len(m), 4096))
time.sleep(1000)'`)
			hide := func(scripts map[string]string) {
				for name, script := range scripts { // sequentially, since each uses memory
					bx := b.start()
					b.run(bx, script)
					requireExceeded(t, bx, Memory)
					t.Logf("%s: %s", name, bx.Exceeded().Text)
				}
			}
			hide(hideMemory)
			if o.Isolation == Namespaces {
				hide(hideInMounts)
			}
			require.Equal(t, "on\n", b.sh(other, "echo on"))
			require.Nil(t, other.Exceeded())
		})
	}
}

// TestFilesInMemoryAreBoundedForOrdinaryUser runs the watchdog tests as an ordinary user.
func TestFilesInMemoryAreBoundedForOrdinaryUser(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("is one already")
	}
	const nobody = 65534
	dir := memorytest.Dir(t) // another user must be able to access its parents
	require.NoError(t, os.Chown(dir, nobody, nobody))
	program := filepath.Join(dir, "box.test") // in a place that the user can access
	self, err := os.Executable()
	require.NoError(t, err)
	// A separate process writes the file: a process that another test forks meanwhile would inherit
	// the open file, and it could not be executed.
	require.NoError(t, exec.Command("cp", self, program).Run())
	cmd := exec.Command(program, "-test.v", "-test.run=^TestSandboxIsEndedWhose|^TestReserveOfMemory|^TestSharedMemoryHasSize")
	cmd.Dir = dir
	cmd.Env = []string{"TMPDIR=" + dir, "HOME=" + dir, "PATH=" + os.Getenv("PATH")}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "--- PASS: TestSandboxIsEndedWhose")
}

// TestSharedMemoryHasSize fills the shared memory of a sandbox, which does not end the sandbox.
func TestSharedMemoryHasSize(t *testing.T) {
	t.Parallel()
	b := setup(t, Options{Isolation: Namespaces, Limits: Limits{Memory: leastMemory}, noCgroups: true})
	bx := b.start()
	require.Equal(t, "66 MB\n", b.sh(bx, `head -c 200M /dev/zero >/dev/shm/f 2>/dev/null || echo $(($(wc -c </dev/shm/f) / 1000000 - 1)) MB`))
	require.Equal(t, "4096\n", b.sh(bx, "rm /dev/shm/f; stat -f -c %c /dev/shm"))
	shared := func(mib int) string {
		return strings.TrimSpace(b.sh(bx, `python3 -c '
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
print(libc.shmget(0, `+strconv.Itoa(mib)+` << 20, 0o1600) >= 0)'`))
	}
	if limit := strings.TrimSpace(b.sh(bx, "cat /proc/sys/kernel/shmmax")); len(limit) > 10 {
		t.Skip("only the machine's root limits System V shared memory on this kernel: ", limit)
	}
	require.Equal(t, "False", shared(65))
	require.Equal(t, "True", shared(40))
	require.Equal(t, "False", shared(40), "they are limited together")
	require.Nil(t, bx.Exceeded())
}

// TestFilesInMemoryAreInControlGroups checks that the kernel charges such files to the control
// group of the box.
func TestFilesInMemoryAreInControlGroups(t *testing.T) {
	t.Parallel()
	b := setup(t, Options{Isolation: Namespaces, Limits: Limits{Memory: leastMemory}})
	if b.rt.cgroups == nil {
		t.Skip("no control groups here: ", b.rt.Unlimited())
	}
	for name, script := range map[string]string{
		"memfd": strings.Replace(hideMemory["one memfd"], "time.sleep(1000)", `print("took it all")`, 1),
		"tmpfs": `mount -t tmpfs x /mnt && head -c 200M /dev/zero >/mnt/f && echo "took it all"`,
	} {
		// No process has the file mapped: the kernel kills any process of the sandbox.
		p := b.exec(b.start(), wire.ExecSpec{Args: []string{"sh", "-c", script}, Env: []string{"PATH=" + DefaultPath}})
		out, err := io.ReadAll(p.stdout)
		require.NoError(t, err)
		<-p.Done()
		code, signal := p.Exit()
		require.False(t, code == 0 && signal == 0, "%s: %s", name, out)
		require.NotContains(t, string(out), "took it all")
	}
	require.Equal(t, "on\n", b.sh(b.start(), "echo on"))
}

// fakeMemory simulates a machine with 100 GiB of memory and the given number of available bytes. set
// changes the number; until changes it until a sandbox exceeds its limits, so that no other sandbox is
// ended as well.
func (b *bundle) fakeMemory(available int64) (set func(int64), until func(int64, *Box), looks func() int64) {
	var now, count atomic.Int64
	var held atomic.Pointer[Box]
	now.Store(available)
	b.rt.watchdog.readMemory = func() (machineMemory, error) {
		count.Add(1)
		if bx := held.Load(); bx != nil && bx.Exceeded() != nil {
			now.Store(4 << 30)
		}
		return machineMemory{total: 100 << 30, available: now.Load()}, nil
	}
	until = func(available int64, bx *Box) {
		held.Store(bx)
		now.Store(available)
	}
	return now.Store, until, count.Load
}

// inFlight allocates 100 MiB in a file that is only in a socket's queue, where it is not visible.
const inFlight = `python3 -c '
import os, socket, time
a, b = socket.socketpair()
f = os.memfd_create("x")
for _ in range(100): os.write(f, bytes(1 << 20))
socket.send_fds(a, [b"x"], [f])
os.close(f)
print("hidden", flush=True)
time.sleep(1000)'`

// awaitLine starts a script and returns when it prints a line.
func (b *bundle) awaitLine(bx *Box, script string) {
	b.t.Helper()
	p := b.exec(bx, wire.ExecSpec{Args: []string{"sh", "-c", script}, Env: []string{"PATH=" + DefaultPath}})
	buf := make([]byte, 1)
	_, err := io.ReadFull(p.stdout, buf)
	require.NoError(b.t, err)
}

func TestReserveOfMemoryStaysFree(t *testing.T) {
	t.Parallel()
	b := setup(t, Options{Isolation: Namespaces, noCgroups: true})
	_, until, looks := b.fakeMemory(3 << 29) // less than twice the reserve
	other, hider := b.start(), b.start()
	b.awaitLine(other, `python3 -c '
import time
x = bytearray(40 << 20)
print("on", flush=True)
time.sleep(1000)'`)
	before := looks() // later checks compare with the bytes that the boxes have written until now
	require.Eventually(t, func() bool { return looks() > before+1 }, waitLimit, 10*time.Millisecond)
	b.awaitLine(hider, inFlight)
	until(1<<30-30<<20, hider)
	requireExceeded(t, hider, Memory)
	require.Contains(t, hider.Exceeded().Text, "nearly used up (994.0 MiB are available, the reserve is 1024.0 MiB)")
	require.Equal(t, "on\n", b.sh(other, "echo on"))
	require.Nil(t, other.Exceeded())
}

func TestReserveOfMemoryEndsLargestSandbox(t *testing.T) {
	t.Parallel()
	b := setup(t, Options{Isolation: Namespaces, noCgroups: true})
	set, until, looks := b.fakeMemory(4 << 30)
	small, large := b.start(), b.start()
	for bx, size := range map[*Box]string{small: "20", large: "80"} {
		b.awaitLine(bx, `python3 -c '
import time
x = bytearray(`+size+` << 20)
print("on", flush=True)
time.sleep(1000)'`)
	}
	set(1<<30 - 512<<20) // others use it: no sandbox is as large as the missing memory
	before := looks()
	require.Eventually(t, func() bool { return looks() > before+5 }, waitLimit, 10*time.Millisecond)
	require.Nil(t, large.Exceeded())
	until(1<<30-30<<20, large)
	requireExceeded(t, large, Memory)
	require.Equal(t, "on\n", b.sh(small, "echo on"))
	require.Nil(t, small.Exceeded())
}

// TestKernelEndsSandboxFirst covers a sandbox whose memory is not bounded otherwise.
func TestKernelEndsSandboxFirst(t *testing.T) {
	t.Parallel()
	for way, o := range ways {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			o.noCgroups = true
			b := setup(t, o)
			bx := b.start()
			adjustment, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(bx.PID()), "oom_score_adj"))
			require.NoError(t, err)
			require.Equal(t, "500\n", string(adjustment))
			require.Equal(t, "500\n", b.sh(bx, "cat /proc/self/oom_score_adj"))
		})
	}
}
