package box

import (
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/overwinter-dev/overwinter/internal/memorytest"
)

// forks starts up to 500 processes and prints how many started: a shell stops at the first failure.
const forks = `(i=0; while [ $i -lt 500 ]; do sleep 1000 >/dev/null 2>&1 & i=$((i+1)); echo $i >/tmp/n; done) 2>/dev/null; read n </tmp/n; echo $n`

func TestSandboxHasNoMoreProcessesThanItsLimit(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]Options{"overlay": ways["overlay"], "chroot": ways["chroot"]} {
		for _, groups := range []bool{true, false} {
			t.Run(name+" with control groups "+strconv.FormatBool(groups), func(t *testing.T) {
				t.Parallel()
				o.Limits, o.noCgroups = Limits{Processes: 100}, !groups
				b := setup(t, o)
				switch {
				case !groups && o.Isolation != Namespaces:
					t.Skip("nothing else counts a sandbox's processes at this level")
				case groups && b.rt.cgroups == nil:
					t.Skip("no control groups here: ", b.rt.Unlimited())
				}
				got, err := strconv.Atoi(strings.TrimSpace(b.sh(b.start(), forks)))
				require.NoError(t, err)
				require.Greater(t, got, 50)
				require.Less(t, got, 100)

				o.Limits = Limits{}
				got, err = strconv.Atoi(strings.TrimSpace(setup(t, o).sh(b.start(), "echo 1"))) // another box is not affected
				require.NoError(t, err)
				require.Equal(t, 1, got)
			})
		}
	}
}

func TestSandboxHasNoMoreMemoryThanItsLimit(t *testing.T) {
	t.Parallel()
	b := setup(t, Options{Isolation: Namespaces, Limits: Limits{Memory: 192 << 20}})
	if b.rt.cgroups == nil {
		t.Skip("no control groups here: ", b.rt.Unlimited())
	}
	bx := b.start()
	// tail keeps its input in memory.
	require.Contains(t, b.sh(bx, `head -c 64M /dev/zero | tail -c 64M >/dev/null; echo "ended $?"`), "ended 0")
	require.Contains(t, b.sh(bx, `head -c 600M /dev/zero | tail -c 600M >/dev/null; echo "ended $?"`), "ended 137")
	require.Equal(t, "on\n", b.sh(bx, "echo on"), "the sandbox lives on")
}

func TestSandboxHasNoMoreTimeThanItsCPUs(t *testing.T) {
	t.Parallel()
	b := setup(t, Options{Isolation: Namespaces, Limits: Limits{CPUs: 0.1}})
	if b.rt.cgroups == nil {
		t.Skip("no control groups here: ", b.rt.Unlimited())
	}
	bx := b.start()
	b.sh(bx, `i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done`)
	groups := b.rt.cgroups.of(bx.id)
	group := groups[""]
	if b.rt.cgroups.version == 1 {
		group = groups["cpu"]
	}
	stat, err := os.ReadFile(filepath.Join(group, "cpu.stat"))
	require.NoError(t, err)
	for line := range strings.Lines(string(stat)) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), "nr_throttled "); ok {
			n, err := strconv.Atoi(value)
			require.NoError(t, err)
			require.Positive(t, n, "%s", stat)
			return
		}
	}
	require.FailNow(t, "no count of throttled periods", "%s", stat)
}

func TestControlGroupsGoWithTheirSandboxes(t *testing.T) {
	t.Parallel()
	b := setup(t, Options{Isolation: Namespaces})
	if b.rt.cgroups == nil {
		t.Skip("no control groups here: ", b.rt.Unlimited())
	}
	bx := b.start()
	groups, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(bx.PID()), "cgroup"))
	require.NoError(t, err)
	for _, group := range b.rt.cgroups.of(bx.id) {
		require.DirExists(t, group)
		// A process can only mount a group without our limits.
		require.Contains(t, string(groups), filepath.Join("/", filepath.Base(filepath.Dir(group)), bx.id, "inside")+"\n")
	}
	bx.Kill()
	for _, group := range b.rt.cgroups.of(bx.id) {
		require.NoDirExists(t, group)
	}
	// The next server removes the groups that a killed server left.
	for _, group := range b.rt.cgroups.of("left") {
		require.NoError(t, os.Mkdir(group, 0o755))
	}
	again, err := openCgroups(b.rt.dir)
	require.NoError(t, err)
	for _, group := range again.of("left") {
		require.NoDirExists(t, group)
	}
}

// If the groups belong to the sandbox's user, a process can create groups below its own.
func TestNestedControlGroupsAreCounted(t *testing.T) {
	t.Parallel()
	b := setup(t, Options{Isolation: Namespaces})
	if b.rt.cgroups == nil {
		t.Skip("no control groups here: ", b.rt.Unlimited())
	}
	bx := b.start()
	if b.rt.cgroups.version == 2 {
		group := filepath.Join(b.rt.cgroups.of(bx.id)[""], inside)
		require.ErrorIs(t, os.Mkdir(filepath.Join(group, "hidden"), 0o755), unix.EAGAIN)
		made := b.sh(bx, "unshare -UrmC sh -c 'mount -t cgroup2 x /mnt && ls /mnt/cgroup.procs && mkdir /mnt/hidden && echo made' 2>&1; true")
		require.NotContains(t, made, "made")
		return
	}
	before, err := b.rt.cgroups.processes(bx.id)
	require.NoError(t, err)
	require.Contains(t, before, bx.PID())
	for _, group := range b.rt.cgroups.of(bx.id) { // like such a process
		hidden := filepath.Join(group, inside, "hidden", "deeper")
		require.NoError(t, os.MkdirAll(hidden, 0o755))
		require.NoError(t, write(hidden, "cgroup.procs", strconv.Itoa(bx.PID())))
	}
	after, err := b.rt.cgroups.processes(bx.id)
	require.NoError(t, err)
	require.Contains(t, after, bx.PID())
	bx.Kill()
	for _, group := range b.rt.cgroups.of(bx.id) {
		require.NoDirExists(t, group)
	}
}

// TestControlGroupsHaveNoneBelowOneInside checks the limit of version 2, without controllers.
func TestControlGroupsHaveNoneBelowOneInside(t *testing.T) {
	t.Parallel()
	places, err := findCgroups()
	require.NoError(t, err)
	place, ok := places[""]
	if !ok {
		t.Skip("version 2 of control groups is not mounted")
	}
	group := filepath.Join(place.own, "overwinter-test-"+strconv.Itoa(os.Getpid()))
	if err := os.Mkdir(group, 0o755); err != nil {
		t.Skip("no control groups of this user: ", err)
	}
	t.Cleanup(func() { require.NoError(t, removeGroup(group)) })
	require.NoError(t, os.Mkdir(filepath.Join(group, inside), 0o755))
	require.NoError(t, forbidGroups(group))
	require.ErrorIs(t, os.Mkdir(filepath.Join(group, inside, "hidden"), 0o755), unix.EAGAIN)
}

// TestControlGroupsOfKilledServersAreRemoved uses groups of a process that has ended, of this
// process and of one in another PID namespace.
func TestControlGroupsOfKilledServersAreRemoved(t *testing.T) {
	t.Parallel()
	rt, err := Open(t.Context(), Options{Dir: memorytest.Dir(t), Isolation: Namespaces})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, rt.Close()) })
	if rt.cgroups == nil {
		t.Skip("no control groups here: ", rt.Unlimited())
	}
	self, err := thisOwner()
	require.NoError(t, err)
	cmd := exec.Command("true")
	require.NoError(t, cmd.Run())
	killed, reused, elsewhere := self, self, self
	killed.pid = cmd.Process.Pid
	reused.started--
	elsewhere.pid, elsewhere.namespace = cmd.Process.Pid, self.namespace+1
	dir := hex.EncodeToString([]byte(filepath.Base(t.TempDir()) + strconv.Itoa(os.Getpid())))
	for _, group := range rt.cgroups.groups {
		for _, owner := range []groupOwner{killed, reused, elsewhere, self} {
			path := filepath.Join(filepath.Dir(group), owner.name(dir))
			require.NoError(t, os.MkdirAll(filepath.Join(path, "sb-left"), 0o755))
			t.Cleanup(func() { _, _ = os.Remove(filepath.Join(path, "sb-left")), os.Remove(path) })
		}
	}
	another, err := Open(t.Context(), Options{Dir: memorytest.Dir(t), Isolation: Namespaces})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, another.Close()) })
	for _, group := range rt.cgroups.groups {
		parent := filepath.Dir(group)
		require.NoDirExists(t, filepath.Join(parent, killed.name(dir)))
		require.NoDirExists(t, filepath.Join(parent, reused.name(dir)))
		require.DirExists(t, filepath.Join(parent, elsewhere.name(dir)))
		require.DirExists(t, filepath.Join(parent, self.name(dir)))
		require.DirExists(t, group, "a living server keeps its own")
	}
}

// TestAllSandboxesWeighAsMuchAsOneProgramOnEachCPU compares the weight of the group of all
// sandboxes with the weights of its competitors.
func TestAllSandboxesWeighAsMuchAsOneProgramOnEachCPU(t *testing.T) {
	t.Parallel()
	b := setup(t, Options{Isolation: Namespaces})
	if b.rt.cgroups == nil {
		t.Skip("no control groups here: ", b.rt.Unlimited())
	}
	all, file := b.rt.cgroups.groups[""], "cpu.weight"
	if b.rt.cgroups.version == 1 {
		all, file = b.rt.cgroups.groups["cpu"], "cpu.shares"
	}
	read := func(names ...string) string {
		content, err := os.ReadFile(filepath.Join(names...))
		require.NoError(t, err)
		return strings.TrimSpace(string(content))
	}
	another := filepath.Join(filepath.Dir(all), "overwinter-test-"+filepath.Base(t.TempDir())+strconv.Itoa(os.Getpid()))
	require.NoError(t, os.Mkdir(another, 0o755))
	t.Cleanup(func() { require.NoError(t, os.Remove(another)) })
	ordinary, err := strconv.Atoi(read(another, file)) // the kernel's default, also for a process
	require.NoError(t, err)
	competitors := 1
	if read(filepath.Dir(all), "cgroup.procs") != "" {
		competitors = runtime.NumCPU()
	}
	require.Equal(t, strconv.Itoa(ordinary*competitors), read(all, file))
	require.Equal(t, strconv.Itoa(ordinary), read(all, b.start().id, file), "sandboxes have equal weights")
}

func TestControlGroupsGoWithServer(t *testing.T) {
	t.Parallel()
	rt, err := Open(t.Context(), Options{Dir: memorytest.Dir(t), Isolation: Namespaces})
	require.NoError(t, err)
	if rt.cgroups == nil {
		require.NoError(t, rt.Close())
		t.Skip("no control groups here: ", rt.Unlimited())
	}
	for _, group := range rt.cgroups.groups {
		require.DirExists(t, group)
	}
	require.NoError(t, rt.Close())
	for _, group := range rt.cgroups.groups {
		require.NoDirExists(t, group)
	}
}

func TestLimitsNameTheirBounds(t *testing.T) {
	t.Parallel()
	for text, l := range map[string]Limits{
		"63 processes": {Processes: 63}, "40000 processes": {Processes: 40000}, "1000 bytes": {Memory: 1000}, "0.001 CPUs": {CPUs: 0.001},
	} {
		require.ErrorContains(t, l.Check(), text)
	}
	require.NoError(t, Limits{}.Check())
	wide := Limits{Processes: 1000, Memory: 1 << 30}
	require.Equal(t, Limits{Processes: 100, Memory: 1 << 30, CPUs: 2}, wide.narrowed(Limits{Processes: 100, Memory: 8 << 30, CPUs: 2}))
}

func TestProcessHasNoMoreOpenFilesThanItsLimit(t *testing.T) {
	t.Parallel()
	onEach(t, ways, func(t *testing.T, b *bundle) {
		most, err := strconv.Atoi(strings.TrimSpace(b.sh(b.start(), "ulimit -Hn")))
		require.NoError(t, err)
		require.LessOrEqual(t, most, 65536)
	})
}

func TestNoDiskSpaceIsTakenWithoutWritingIt(t *testing.T) {
	t.Parallel()
	onEach(t, map[string]Options{"overlay": ways["overlay"], "copies": ways["copies"], "chroot": ways["chroot"]}, func(t *testing.T, b *bundle) {
		require.Equal(t, "refused\n", b.sh(b.start(), "head -c 1M /dev/zero >/tmp/f; fallocate -l 2M /tmp/f 2>/dev/null || echo refused; fallocate -p -o 0 -l 4096 /tmp/f"))
	})
}
