package box

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Without control groups that bound memory, the watchdog sums up the memory that the processes of a
// box have mapped and the size of its files in memory: tmpfs, memfd and System V shared memory,
// mapped or not. Memory that it cannot find this way (buffers of sockets and pipes, descriptors in
// flight, other kernel memory) is bounded only by the reserve of the machine's memory.

const (
	// memoryTime is how long a box may exceed its memory.
	memoryTime = time.Second
	// memoryInterval is the interval between counts of a box's files in memory while the machine's
	// memory does not change.
	memoryInterval = 10 * time.Second
	// memoryRelief bounds the wait for the release of an ended box's memory before the next box is
	// ended.
	memoryRelief = 5 * time.Second
	// maxDescriptors and maxMounts bound the descriptors and mounts that one count reads. A box
	// with more is ended.
	maxDescriptors = 1 << 18
	maxMounts      = 1 << 15
	// littleMemory is the size of files in memory up to which they are not distinguished from
	// mapped memory.
	littleMemory = 1 << 20
	// inodeMemory is the kernel memory of an empty file in memory.
	inodeMemory = 1 << 10
)

// machineMemory is the state of the memory of the machine, or of the container of this process.
type machineMemory struct {
	total     int64
	available int64 // without swapping
	swap      int64 // free
	shared    int64 // files in memory of all programs
}

// short reports whether less than a reserve is available.
func (m machineMemory) short(reserve int64) bool { return m.available < reserve && m.swap < reserve }

// readMachineMemory reads /proc/meminfo.
func readMachineMemory() (machineMemory, error) {
	info, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return machineMemory{}, err
	}
	m := machineMemory{available: -1}
	for line := range bytes.Lines(info) {
		name, value, _ := bytes.Cut(line, []byte(":"))
		var into *int64
		switch string(name) {
		case "MemTotal":
			into = &m.total
		case "MemAvailable":
			into = &m.available
		case "SwapFree":
			into = &m.swap
		case "Shmem":
			into = &m.shared
		default:
			continue
		}
		kib, err := strconv.ParseInt(string(bytes.TrimSpace(bytes.TrimSuffix(bytes.TrimSpace(value), []byte("kB")))), 10, 64)
		if err != nil {
			return machineMemory{}, fmt.Errorf("read /proc/meminfo: %w", err)
		}
		*into = kib << 10
	}
	if m.available < 0 {
		return machineMemory{}, errors.New("read /proc/meminfo: no MemAvailable")
	}
	return m, nil
}

// memoryAccount records the memory of a box. Only the watchdog's goroutine uses it.
type memoryAccount struct {
	used          int64     // as of the last check
	exceededSince time.Time // since when it exceeds the limit; zero if it does not

	files   memoryFiles // as of the last count
	counted time.Time   // when
	took    time.Duration
	machine machineMemory // then

	apart     int64 // memory of processes without files, as of the last check of their mappings
	apartAt   time.Time
	apartTook time.Duration

	touched int64 // bytes that its processes had written or faulted in when available memory approached the reserve
}

// isTime reports whether the files in memory must be counted.
func (a *memoryAccount) isTime(machine machineMemory, left, margin int64, now time.Time) bool {
	passed := now.Sub(a.counted)
	if a.counted.IsZero() || passed >= max(memoryInterval, measureShare*a.took) {
		return true
	}
	taken := max(a.machine.available-machine.available, machine.shared-a.machine.shared)
	return passed >= growingShare*a.took && taken >= max(min(left, margin)/2, leastGrowth)
}

// lookAtMemory ends boxes that have exceeded their memory for memoryTime, and the largest box while
// the reserve is not available.
func (w *watchdog) lookAtMemory(all []*watched, processes map[int]hostProcess, families map[int][]int, now time.Time) {
	machine, err := w.readMemory()
	if err != nil {
		w.rt.logger.Warn("free memory unknown", slog.Any("error", err))
		return
	}
	reserve := w.rt.limits.memoryReserve(machine)
	short := machine.short(reserve)
	for _, s := range all {
		a, limit, family := &s.memory, s.box.limits.Memory, families[s.box.PID()]
		var resident int64
		for _, pid := range family {
			resident += processes[pid].resident
		}
		left := limit - resident - a.files.bytes
		again := short || !a.exceededSince.IsZero() // the decision may be based on old data
		if again && now.Sub(a.counted) >= growingShare*a.took || a.isTime(machine, left, machine.available-reserve, now) {
			if why := w.countMemory(s, family, machine, now); why != nil {
				w.end(s, why)
				continue
			}
		}
		a.used = resident + a.files.bytes
		if a.used > limit {
			a.used = a.apartFrom(family, processes, now) + a.files.bytes
		}
		switch {
		case a.used <= limit:
			a.exceededSince = time.Time{}
		case a.exceededSince.IsZero():
			a.exceededSince = now
		case now.Sub(a.exceededSince) >= memoryTime:
			w.end(s, &ExceededError{Memory, fmt.Sprintf("the sandbox has used %s of memory for %v, %s of it in files in memory; its limit is %s",
				mib(a.used), memoryTime, mib(a.files.bytes), mib(limit))})
		}
	}
	w.relieveMemory(all, processes, families, machine, reserve, now)
}

// countMemory counts the files in memory of a box. The error is the reason to end it.
func (w *watchdog) countMemory(s *watched, family []int, machine machineMemory, now time.Time) *ExceededError {
	began := time.Now()
	files, err := memoryFilesOf(append([]int{s.box.PID()}, family...))
	a := &s.memory
	a.files, a.counted, a.took, a.machine = files, now, time.Since(began), machine
	var exceeded *ExceededError
	switch {
	case errors.As(err, &exceeded):
		return exceeded
	case err != nil:
		w.rt.logger.Warn("files in memory of a sandbox could not be counted", slog.String("sandbox_id", s.box.id), slog.Any("error", err))
	}
	return nil
}

// apartFrom returns the memory of processes without the files that are counted. Memory that they
// share counts once.
func (a *memoryAccount) apartFrom(family []int, processes map[int]hostProcess, now time.Time) int64 {
	if !a.apartAt.IsZero() && now.Sub(a.apartAt) < growingShare*a.apartTook {
		return a.apart
	}
	began := time.Now()
	a.apart = 0
	for _, pid := range family {
		var share int64
		var ok bool
		if a.files.bytes < littleMemory {
			share, ok = proportional(pid)
		} else {
			share, ok = a.files.proportional(pid)
		}
		if !ok {
			share = processes[pid].resident
		}
		a.apart += share
	}
	a.apartAt, a.apartTook = now, time.Since(began)
	return a.apart
}

// relieveMemory ends the largest box while the reserve is not available, one per check, unless that
// box is too small to restore the reserve: then other programs use the memory. The size of a box is
// its counted memory or, if larger, the bytes that its processes have written or faulted in since
// available memory approached the reserve: these may be in memory that is not counted.
func (w *watchdog) relieveMemory(all []*watched, processes map[int]hostProcess, families map[int][]int, machine machineMemory, reserve int64, now time.Time) {
	if !machine.short(2 * reserve) {
		w.memoryNear = false
		return
	}
	touched := func(s *watched) (total int64) {
		for _, pid := range append([]int{s.box.PID()}, families[s.box.PID()]...) {
			total += processes[pid].faulted + ioOfProcess(pid, "wchar")
		}
		return total
	}
	if !w.memoryNear {
		w.memoryNear = true
		for _, s := range all {
			s.memory.touched = touched(s)
		}
	}
	before := w.memoryBefore
	w.memoryBefore = machine.available
	if !machine.short(reserve) || machine.available > before && now.Sub(w.memoryEnded) < memoryRelief {
		return
	}
	var worst *watched
	var most int64
	for _, s := range all {
		if s.box.Exceeded() != nil {
			continue
		}
		if size := max(s.memory.used, touched(s)-s.memory.touched); worst == nil || size > most {
			worst, most = s, size
		}
	}
	if worst == nil || most < reserve-machine.available {
		return
	}
	w.memoryEnded = now
	w.end(worst, &ExceededError{Memory, fmt.Sprintf("the machine's memory is nearly used up (%s are available, the reserve is %s), and the sandbox is the largest: it uses %s",
		mib(machine.available), mib(reserve), mib(most))})
}

// memoryFiles is the memory of files in memory, including those that no process has mapped.
type memoryFiles struct {
	bytes   int64
	devices map[uint64]bool // file systems that are counted as a whole
	inodes  map[inode]bool  // files that are counted individually
	systemV bool            // whether System V shared memory is counted
}

// internalDevice is the device of files in memory that no mount shows: memfd, System V shared
// memory and shared mappings. It is 0 if unknown.
var internalDevice = sync.OnceValue(func() uint64 {
	fd, err := unix.MemfdCreate("overwinter", unix.MFD_CLOEXEC)
	if err != nil {
		return 0
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil {
		return 0
	}
	return st.Dev
})

// proportional returns the memory of a process without counted files, including its share of memory
// that it shares with other processes.
func (m *memoryFiles) proportional(pid int) (int64, bool) {
	f, err := os.Open(filepath.Join("/proc", strconv.Itoa(pid), "smaps"))
	if err != nil {
		return 0, false
	}
	defer f.Close()
	var total int64
	counted, found := false, false
	for lines := bufio.NewScanner(f); lines.Scan(); {
		name, value, _ := bytes.Cut(lines.Bytes(), []byte(" "))
		switch {
		case !bytes.HasSuffix(name, []byte(":")):
			counted, found = m.maps(lines.Text()), true
		case !counted && string(name) == "Pss:":
			kib, err := strconv.ParseInt(string(bytes.TrimSpace(bytes.TrimSuffix(bytes.TrimSpace(value), []byte("kB")))), 10, 64)
			if err != nil {
				return 0, false
			}
			total += kib << 10
		}
	}
	return total, found
}

// maps reports whether a mapping, a line of /proc/PID/maps, is of a counted file.
func (m *memoryFiles) maps(line string) bool {
	fields := strings.Fields(line)
	if len(fields) < 6 {
		return false
	}
	dev, ok := parseDevice(fields[3], 16)
	ino, err := strconv.ParseUint(fields[4], 10, 64)
	if !ok || err != nil {
		return false
	}
	if dev == internalDevice() && strings.HasPrefix(fields[5], "/SYSV") { // whose inodes have separate numbers
		return m.systemV
	}
	return m.devices[dev] || m.inodes[inode{dev, ino}]
}

// parseDevice parses MAJOR:MINOR.
func parseDevice(text string, base int) (uint64, bool) {
	major, minor, _ := strings.Cut(text, ":")
	a, errMajor := strconv.ParseUint(major, base, 32)
	b, errMinor := strconv.ParseUint(minor, base, 32)
	return unix.Mkdev(uint32(a), uint32(b)), errMajor == nil && errMinor == nil
}

// fileKind is how the files of a device are counted.
type fileKind int

const (
	notInMemory fileKind = iota + 1
	asWhole
	oneByOne
)

type memoryMeter struct {
	memoryFiles
	kinds       map[uint64]fileKind
	namespaces  map[string]bool
	descriptors int
	mounts      int
}

// memoryFilesOf counts the files in memory of processes: their open files, and every tmpfs in their
// mount namespaces. It returns an *ExceededError if they cannot be counted.
func memoryFilesOf(pids []int) (memoryFiles, error) {
	m := &memoryMeter{
		memoryFiles: memoryFiles{devices: map[uint64]bool{}, inodes: map[inode]bool{}}, kinds: map[uint64]fileKind{}, namespaces: map[string]bool{},
	}
	// The machine's own file systems, which a box may see, do not belong to a box.
	own, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return m.memoryFiles, err
	}
	for line := range strings.Lines(string(own)) {
		if mount, ok := parseMount(line); ok {
			m.kinds[mount.dev] = notInMemory
		}
	}
	if dev := internalDevice(); dev != 0 {
		m.kinds[dev] = oneByOne
	}
	for _, pid := range pids {
		dir := filepath.Join("/proc", strconv.Itoa(pid))
		if err := m.openFiles(dir); err != nil {
			return m.memoryFiles, err
		}
		if err := m.mounted(dir); err != nil {
			return m.memoryFiles, err
		}
	}
	return m.memoryFiles, nil
}

// openFiles counts the open files of a process, and the file systems of its directories and its
// program.
func (m *memoryMeter) openFiles(dir string) error {
	for _, name := range []string{"cwd", "root", "exe"} {
		if err := m.file(filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	d, err := os.Open(filepath.Join(dir, "fd"))
	if err != nil {
		return nil // it has ended, or is not ours to look into
	}
	defer d.Close()
	for {
		names, err := d.Readdirnames(chunkOfNames)
		if m.descriptors += len(names); m.descriptors > maxDescriptors {
			return &ExceededError{Memory, fmt.Sprintf("the processes of the sandbox have more than %d files open: the memory in them cannot be counted", maxDescriptors)}
		}
		for _, name := range names {
			if err := m.file(filepath.Join(dir, "fd", name)); err != nil {
				return err
			}
		}
		if err != nil { // the end, or that of the process
			return nil // see above
		}
	}
}

// file counts an open file of a process, by its name in /proc.
func (m *memoryMeter) file(name string) error {
	var st unix.Stat_t
	if unix.Stat(name, &st) != nil {
		return nil //nolint:nilerr // it has ended, or the file is closed
	}
	kind, ok := m.kinds[st.Dev]
	if !ok {
		var where unix.Statfs_t
		if unix.Statfs(name, &where) != nil {
			return nil //nolint:nilerr // likewise
		}
		var err error
		if kind, err = m.device(st.Dev, &where); err != nil {
			return err
		}
	}
	if kind == oneByOne && !m.inodes[inode{st.Dev, st.Ino}] {
		m.inodes[inode{st.Dev, st.Ino}] = true
		m.bytes += st.Blocks*512 + inodeMemory
	}
	return nil
}

// device counts a file system if it is in memory.
func (m *memoryMeter) device(dev uint64, st *unix.Statfs_t) (fileKind, error) {
	kind := notInMemory
	switch {
	case st.Type == unix.RAMFS_MAGIC:
		return 0, &ExceededError{Memory, "a program of the sandbox has mounted a ramfs: the memory in it cannot be counted"}
	case st.Type == unix.TMPFS_MAGIC && (st.Blocks == 0 || st.Files == 0):
		return 0, &ExceededError{Memory, "a program of the sandbox has mounted a tmpfs without a limit of its size or its inodes: the memory in it cannot be counted"}
	case st.Type == unix.TMPFS_MAGIC:
		kind = asWhole
		m.devices[dev] = true
		m.bytes += int64(st.Blocks-st.Bfree)*st.Bsize + int64(st.Files-st.Ffree)*inodeMemory
	}
	m.kinds[dev] = kind
	return kind, nil
}

// mounted counts the file systems of the mount namespace of a process, once per namespace.
func (m *memoryMeter) mounted(dir string) error {
	namespace, err := os.Readlink(filepath.Join(dir, "ns", "mnt"))
	if err != nil || m.namespaces[namespace] {
		return nil // it has ended, or is not ours to look into
	}
	m.namespaces[namespace] = true
	f, err := os.Open(filepath.Join(dir, "mountinfo"))
	if err != nil {
		return nil // likewise
	}
	defer f.Close()
	root := -1
	defer func() {
		if root >= 0 {
			_ = unix.Close(root)
		}
	}()
	lines := bufio.NewReader(f)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			return nil // the end, or that of the process
		}
		if m.mounts++; m.mounts > maxMounts {
			return &ExceededError{Memory, fmt.Sprintf("the sandbox has more than %d mounts: the memory in them cannot be counted", maxMounts)}
		}
		mount, ok := parseMount(line)
		if !ok || m.kinds[mount.dev] != 0 || mount.kind != "tmpfs" && mount.kind != "ramfs" {
			continue
		}
		if root < 0 {
			if root, err = unix.Open(filepath.Join(dir, "root"), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err != nil {
				return nil // likewise
			}
		}
		if err := m.mountPoint(root, mount); err != nil {
			return err
		}
	}
}

// mountPoint counts a mounted file system. It cannot reach one that another mount hides.
func (m *memoryMeter) mountPoint(root int, mount mountLine) error {
	fd, err := unix.Openat2(root, mount.point, &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return nil // unmounted, or not visible
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	var where unix.Statfs_t
	if unix.Fstat(fd, &st) != nil || st.Dev != mount.dev || unix.Fstatfs(fd, &where) != nil {
		return nil
	}
	_, err = m.device(st.Dev, &where)
	return err
}

// mountLine is a line of /proc/PID/mountinfo.
type mountLine struct {
	dev   uint64
	point string
	kind  string
}

func parseMount(line string) (mountLine, bool) {
	before, after, ok := strings.Cut(line, " - ")
	fields, types := strings.Fields(before), strings.Fields(after)
	if !ok || len(fields) < 5 || len(types) == 0 {
		return mountLine{}, false
	}
	dev, ok := parseDevice(fields[2], 10)
	return mountLine{dev, unescape(fields[4]), types[0]}, ok
}

// unescape replaces \040 and similar sequences, which the kernel writes for characters that
// separate fields.
func unescape(path string) string {
	if !strings.Contains(path, `\`) {
		return path
	}
	var b strings.Builder
	for i := 0; i < len(path); i++ {
		if path[i] == '\\' && i+3 < len(path) {
			if c, err := strconv.ParseUint(path[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(c))
				i += 3
				continue
			}
		}
		b.WriteByte(path[i])
	}
	return b.String()
}
