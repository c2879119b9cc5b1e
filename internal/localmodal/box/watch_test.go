package box

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/overwinter-dev/overwinter/internal/localmodal/wire"
)

// run starts a script without waiting for it.
func (b *bundle) run(bx *Box, script string) {
	b.t.Helper()
	b.exec(bx, wire.ExecSpec{Args: []string{"sh", "-c", script}, Env: []string{"PATH=" + DefaultPath}})
}

// requireExceeded waits for the watchdog to end a box.
func requireExceeded(t *testing.T, bx *Box, resource Resource) {
	t.Helper()
	select {
	case <-bx.Gone():
	case <-time.After(waitLimit):
		require.FailNow(t, "the sandbox was not ended")
	}
	why := bx.Exceeded()
	require.NotNil(t, why)
	require.Equal(t, resource, why.Resource, why.Text)
}

func TestSandboxIsEndedIfItExceedsItsDisk(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]string{
		"bytes":                          "head -c 96M /dev/zero >/tmp/f; sleep 1000",
		"bytes in a file without a name": "exec 3>/tmp/f; rm /tmp/f; head -c 96M /dev/zero >&3; sleep 1000",
		"inodes":                         "mkdir /tmp/d; cd /tmp/d; i=0; while [ $i -lt 6000 ]; do : >f$i; i=$((i+1)); done; sleep 1000",
		"deep directories":               `perl -e 'for (1..1200) { mkdir "d" or die; chdir "d" or die } sleep 1000'`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for way, o := range ways {
				if way == "directory" && name == "deep directories" {
					continue // its tracer refuses such paths
				}
				t.Run(way, func(t *testing.T) {
					t.Parallel()
					o.Limits = Limits{Disk: 32 << 20, Inodes: 3000}
					b := setup(t, o)
					other := b.start()
					bx := b.start()
					b.run(bx, script)
					requireExceeded(t, bx, Disk)
					require.Equal(t, "on\n", b.sh(other, "echo on"))
					require.Nil(t, other.Exceeded())
				})
			}
		})
	}
}

// smallDisk mounts a file system of 256 MiB.
func smallDisk(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if os.Geteuid() != 0 {
		t.Skip("only root may mount a small disk")
	}
	require.NoError(t, unix.Mount("tmpfs", dir, "tmpfs", 0, "size=256m,nr_inodes=40000,mode=755"))
	t.Cleanup(func() { require.NoError(t, unix.Unmount(dir, unix.MNT_DETACH)) })
	return dir
}

func TestDiskReserveStaysFree(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]string{
		"bytes":           "cat /dev/zero >/f; sleep 1000",
		"hidden bytes":    `perl -e 'open F, "+>", "/f"; unlink "/f"; $b = "x" x 65536; 1 while syswrite F, $b; sleep 1000'`,
		"one large block": "fallocate -l 1T /f; fallocate -l 200M /f; cat /dev/zero >>/f; sleep 1000",
		"inodes":          "cd /tmp; i=0; while :; do : >f$i; i=$((i+1)); done",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := smallDisk(t)
			rt, err := Open(t.Context(), Options{Dir: filepath.Join(dir, "data"), Isolation: Namespaces})
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, rt.Close()) })
			b := &bundle{t, rt}
			large := b.start()
			b.sh(large, "head -c 64M /dev/zero >/f") // larger, but not growing
			full := b.start()
			b.run(full, script)
			requireExceeded(t, full, Disk)
			require.NoError(t, rt.Discard(full.id))
			require.Eventually(t, func() bool { return rt.RequireSpace() == nil }, waitLimit, 10*time.Millisecond)
			require.NoError(t, os.WriteFile(filepath.Join(dir, "postgres"), make([]byte, 8<<20), 0o600))
			require.Equal(t, "on\n", b.sh(large, "echo on"))
			require.Nil(t, large.Exceeded())
			b.snapshot(large)
		})
	}
}

// A sandbox may fill the disk up to the reserve, which other programs then use. Sandboxes can
// nevertheless be started again.
func TestDiskReserveIsFreedOfIdleSandboxes(t *testing.T) {
	t.Parallel()
	dir := smallDisk(t)
	rt, err := Open(t.Context(), Options{Dir: filepath.Join(dir, "data"), Isolation: Namespaces})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, rt.Close()) })
	rt.watchdog.heal = 2 * time.Second
	b := &bundle{t, rt}
	other := b.start()
	b.sh(other, "head -c 8M /dev/zero >/f")
	large := b.start()
	b.sh(large, "head -c 150M /dev/zero >/f")
	// Both have been counted, so neither has grown since the reserve ceased to be free.
	require.Eventually(t, func() bool {
		rt.watchdog.mu.Lock()
		defer rt.watchdog.mu.Unlock()
		return rt.watchdog.boxes[large].marked.Load() >= 150<<20 && rt.watchdog.boxes[other].marked.Load() >= 8<<20
	}, waitLimit, 10*time.Millisecond)
	var st unix.Statfs_t
	require.NoError(t, unix.Statfs(dir, &st))
	free := int64(st.Bavail) * st.Bsize
	require.NoError(t, os.WriteFile(filepath.Join(dir, "others"), make([]byte, free-10<<20), 0o600)) // slightly too much
	require.Error(t, rt.RequireSpace())
	requireExceeded(t, large, Disk)
	require.Contains(t, large.Exceeded().Text, "is the largest")
	require.NoError(t, rt.Discard(large.id))
	require.Eventually(t, func() bool { return rt.RequireSpace() == nil }, waitLimit, 10*time.Millisecond)
	require.Equal(t, "on\n", b.sh(other, "echo on"))
	require.Nil(t, other.Exceeded())
}

func TestSnapshotsKeepDiskReserve(t *testing.T) {
	t.Parallel()
	dir := smallDisk(t)
	rt, err := Open(t.Context(), Options{Dir: filepath.Join(dir, "data"), Isolation: Namespaces})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, rt.Close()) })
	b := &bundle{t, rt}
	bx := b.start()
	var st unix.Statfs_t
	require.NoError(t, unix.Statfs(dir, &st))
	free := int64(st.Bavail) * st.Bsize
	require.NoError(t, os.WriteFile(filepath.Join(dir, "others"), make([]byte, free-8<<20), 0o600)) // not caused by the sandbox
	_, err = bx.Snapshot(t.Context(), "refused")
	require.ErrorIs(t, err, unix.ENOSPC)
	require.ErrorContains(t, err, "reserve of 12.8 MiB")
	require.Equal(t, "on\n", b.sh(bx, "sleep 1; echo on"), "files written by others end no sandbox")
	require.NoError(t, os.Remove(filepath.Join(dir, "others")))
	b.snapshot(bx)
}

func TestSandboxIsEndedThatExceedsItsMemoryWithoutControlGroups(t *testing.T) {
	t.Parallel()
	for way, o := range ways {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			o.Limits, o.noCgroups = Limits{Memory: 192 << 20}, true
			b := setup(t, o)
			other := b.start()
			bx := b.start()
			// Shared memory counts once: these are 64 MiB, not 256 MiB.
			b.sh(other, `perl -e '$x = "x" x (64<<20); for (1..3) { if (!fork) { sleep 4; exit } } wait for 1..3'`)
			// tail keeps its input in memory.
			b.run(bx, "(head -c 300M /dev/zero; sleep 1000) | tail -c 300M >/dev/null")
			requireExceeded(t, bx, Memory)
			require.Equal(t, "on\n", b.sh(other, "echo on"))
			require.Nil(t, other.Exceeded())
		})
	}
}

// TestFilesOfManyBoxesAreCountedWithoutListingMachine: listing the processes of the machine
// takes longer than counting the files of a mostly idle box.
func TestFilesOfManyBoxesAreCountedWithoutListingMachine(t *testing.T) {
	t.Parallel()
	for _, grouped := range []bool{true, false} {
		b := setup(t, Options{})
		if grouped && b.rt.cgroups == nil {
			t.Log("no control groups here")
			continue
		}
		w := newWatchdog(b.rt) // not running: the test calls look itself
		now := time.Now()
		for range 8 {
			bx := b.start()
			w.boxes[bx] = &watched{box: bx, interval: measureInterval, at: now.Add(-2 * measureInterval)}
		}
		if !grouped {
			groups := b.rt.cgroups
			b.rt.watchdog.close() // it uses the same field
			b.rt.cgroups = nil
			t.Cleanup(func() { b.rt.cgroups = groups })
		}
		all, want := w.list(), 0
		for range 2 {
			for _, s := range all {
				s.at = now.Add(-2 * measureInterval)
				w.listed = w.listed.Add(-2 * processesAge)
			}
			began := time.Now()
			for _, s := range all {
				w.count(s, usage{}, began.Add(-processesAge))
				require.False(t, s.at.Before(began))
				require.Nil(t, s.box.Exceeded())
			}
			if !grouped {
				want++
			}
			require.Equal(t, want, w.lists, "control groups: %v", grouped)
		}
	}
}

// TestFilesOfSlowlyGrowingBoxAreCountedLessOften: an agent at work appends to its files all the time,
// and counting them costs more than it does.
func TestFilesOfSlowlyGrowingBoxAreCountedLessOften(t *testing.T) {
	t.Parallel()
	b := setup(t, Options{Limits: Limits{Disk: 256 << 20}})
	w := newWatchdog(b.rt) // not running: the test calls count itself
	s := &watched{box: b.start(), interval: measureInterval}
	count := func() time.Duration {
		w.count(s, usage{}, time.Now())
		require.Nil(t, s.box.Exceeded())
		return s.interval
	}
	count()
	s.interval = measureInterval
	for _, want := range []time.Duration{2 * measureInterval, 4 * measureInterval, maxMeasureInterval, maxMeasureInterval} {
		b.sh(s.box, "head -c 20000 /dev/urandom >>/root/grows")
		require.Equal(t, want, count())
	}
	b.sh(s.box, "head -c 16M /dev/urandom >>/root/grows")
	require.Equal(t, measureInterval, count(), "it might reach its limit before the next count")
	require.Equal(t, 2*measureInterval, count())
	b.sh(s.box, "rm /root/grows")
	require.Equal(t, 4*measureInterval, count())
}

// TestProcessesOfBoxAreThoseOfItsGroup checks that both ways to find them agree.
func TestProcessesOfBoxAreThoseOfItsGroup(t *testing.T) {
	t.Parallel()
	b := setup(t, Options{})
	if b.rt.cgroups == nil {
		t.Skip("no control groups here")
	}
	bx, other := b.start(), b.start()
	for range 3 {
		b.run(bx, "sleep 1000 & sleep 1000; wait")
	}
	b.run(other, "sleep 1000")
	require.Eventually(t, func() bool {
		grouped, err := b.rt.cgroups.processes(bx.id)
		if err != nil {
			return false
		}
		processes, err := hostProcesses()
		if err != nil {
			return false
		}
		descended := append(familiesOf(processes, map[int]bool{bx.PID(): true})[bx.PID()], bx.PID())
		slices.Sort(grouped)
		slices.Sort(descended)
		return len(grouped) >= 10 && slices.Equal(grouped, descended)
	}, waitLimit, 10*time.Millisecond)
}
