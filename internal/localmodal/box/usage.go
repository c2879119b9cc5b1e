package box

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// usage is the disk usage of a box.
type usage struct{ bytes, inodes int64 }

func (u usage) minus(o usage) usage { return usage{u.bytes - o.bytes, u.inodes - o.inodes} }

// exceeds reports whether the usage exceeds the limits of disk or inodes.
func (u usage) exceeds(l Limits) bool { return u.bytes > l.Disk || u.inodes > l.Inodes }

// fewMore reports whether a growth between two counts is so small that the box stays within its
// limits even if it continues until the longest interval has passed. An agent at work appends to its
// transcript and its journal all the time.
func (u usage) fewMore(left usage) bool {
	const share = 16 * int64(maxMeasureInterval/measureInterval)
	return u.bytes <= left.bytes/share && u.inodes <= left.inodes/share
}

// maxDepth bounds the nesting of directories, since all parents stay open while a directory is
// counted.
const maxDepth = 1000

// errTooDeep is returned for directories nested deeper than maxDepth.
var errTooDeep = fmt.Errorf("directories nested deeper than %d", maxDepth)

// errEnough stops a count that has reached its bound.
var errEnough = errors.New("enough")

// measure counts the files below dir while it changes, and stops soon after enough reports that the
// result suffices. It does not follow links.
func measure(dir string, enough func(usage) bool) (usage, error) {
	root, err := openRoot(dir)
	if err != nil {
		return usage{}, err
	}
	defer root.close()
	m := &meter{enough: enough, seen: map[inode]struct{}{}}
	m.add(&root.st)
	if err := m.dir(root, 0); err != nil && !errors.Is(err, errEnough) {
		return m.total, err
	}
	return m.total, nil
}

type meter struct {
	total  usage
	enough func(usage) bool
	seen   map[inode]struct{} // files with several names
}

func (m *meter) add(st *unix.Stat_t) {
	if st.Nlink > 1 && st.Mode&unix.S_IFMT != unix.S_IFDIR {
		key := inode{st.Dev, st.Ino}
		if _, ok := m.seen[key]; ok {
			return
		}
		m.seen[key] = struct{}{}
	}
	m.total.bytes += st.Blocks * 512
	m.total.inodes++
}

// chunkOfNames is the number of names of a directory that are read at a time.
const chunkOfNames = 1024

func (m *meter) dir(src *source, depth int) error {
	if depth > maxDepth {
		return errTooDeep
	}
	return whileOpen(src.path, &src.st, func() error {
		fd, err := unix.Open(src.path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return &fs.PathError{Op: "open", Path: src.name, Err: err}
		}
		dir := os.NewFile(uintptr(fd), src.name)
		defer dir.Close()
		for {
			names, err := dir.Readdirnames(chunkOfNames)
			for _, name := range names {
				if err := m.entry(int(dir.Fd()), name, depth); err != nil {
					return err
				}
			}
			if errors.Is(err, io.EOF) || errors.Is(err, fs.ErrNotExist) { // the directory has been removed
				return nil
			}
			if err != nil {
				return err
			}
		}
	})
}

func (m *meter) entry(dir int, name string, depth int) error {
	var st unix.Stat_t
	if err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW); errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return &fs.PathError{Op: "stat", Path: name, Err: err}
	}
	m.add(&st)
	if m.enough(m.total) {
		return errEnough
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return nil
	}
	child, err := openSource(dir, name, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer child.close()
	if !child.isDir() {
		return nil // replaced meanwhile; the next count will see it
	}
	if err := m.dir(child, depth+1); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// hostProcess is the watchdog's record of a process of the machine.
type hostProcess struct {
	parent   int
	resident int64  // bytes
	faulted  int64  // bytes that it and the children that it has waited for have faulted in
	started  string // start time, which distinguishes it from a later process with the same PID
	state    string
	time     cpuTime
}

// hostProcesses lists the processes of the machine.
func hostProcesses() (map[int]hostProcess, error) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	names, err := dir.Readdirnames(-1)
	if err := errors.Join(err, dir.Close()); err != nil {
		return nil, err
	}
	page := int64(os.Getpagesize())
	processes := make(map[int]hostProcess, len(names))
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		stat, err := os.ReadFile(filepath.Join("/proc", name, "stat"))
		if err != nil {
			continue // it has ended
		}
		// The name of the program is in parentheses and may itself contain parentheses.
		fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
		if len(fields) < 22 {
			continue
		}
		parent, err := strconv.Atoi(fields[1])
		if err != nil {
			continue
		}
		resident, err := strconv.ParseInt(fields[21], 10, 64)
		if err != nil {
			continue
		}
		p := hostProcess{parent: parent, resident: resident * page, faulted: (number(fields[7]) + number(fields[8])) * page, started: fields[19], state: fields[0]}
		p.time.own = ticks(fields[11]) + ticks(fields[12])
		p.time.children = ticks(fields[13]) + ticks(fields[14])
		processes[pid] = p
	}
	return processes, nil
}

func number(field string) int64 {
	n, err := strconv.ParseInt(field, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// familiesOf groups the descendants of the given processes. Init adopts every process of its box
// that loses its parent.
func familiesOf(processes map[int]hostProcess, roots map[int]bool) map[int][]int {
	families := make(map[int][]int, len(roots))
	found := make(map[int]int, len(processes)) // the given ancestor of a process; 0 for none
	var rootOf func(pid, steps int) int
	rootOf = func(pid, steps int) int {
		if roots[pid] {
			return pid
		}
		if root, ok := found[pid]; ok {
			return root
		}
		p, ok := processes[pid]
		if !ok || pid <= 1 || steps > len(processes) {
			return 0
		}
		root := rootOf(p.parent, steps+1)
		found[pid] = root
		return root
	}
	for pid := range processes {
		if root := rootOf(pid, 0); root != 0 && pid != root {
			families[root] = append(families[root], pid)
		}
	}
	return families
}

// deleted returns the disk usage of open files of a family that no longer have a name. Files in
// memory have another device than the data directory, or are visible in an overlay.
func deleted(family []int, dataDir string) usage {
	var (
		total usage
		here  unix.Stat_t
	)
	if unix.Stat(dataDir, &here) != nil {
		return total
	}
	seen := map[inode]struct{}{}
	for _, pid := range family {
		dir := filepath.Join("/proc", strconv.Itoa(pid), "fd")
		d, err := os.Open(dir)
		if err != nil {
			continue // it has ended, or is not ours to look into
		}
		names, _ := d.Readdirnames(-1) // the process may end meanwhile
		_ = d.Close()
		for _, name := range names {
			var st unix.Stat_t
			if unix.Stat(filepath.Join(dir, name), &st) != nil || st.Nlink != 0 || st.Mode&unix.S_IFMT != unix.S_IFREG {
				continue
			}
			key := inode{st.Dev, st.Ino}
			if _, ok := seen[key]; ok {
				continue
			}
			seen[key] = struct{}{}
			var where unix.Statfs_t
			if st.Dev != here.Dev && (unix.Statfs(filepath.Join(dir, name), &where) != nil || where.Type != unix.OVERLAYFS_SUPER_MAGIC) {
				continue
			}
			total.bytes += st.Blocks * 512
			total.inodes++
		}
	}
	return total
}

// proportional returns the memory of a process, including its share of memory that it shares with
// others, if it is readable.
func proportional(pid int) (int64, bool) {
	rollup, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "smaps_rollup"))
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(rollup)) {
		if value, ok := strings.CutPrefix(line, "Pss:"); ok {
			kib, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(value), "kB")), 10, 64)
			return kib << 10, err == nil
		}
	}
	return 0, false
}

// writtenBy returns the bytes that the processes of boxes have written to disks, including ended
// processes.
func writtenBy(all []*watched) map[*watched]int64 {
	processes, err := hostProcesses()
	if err != nil {
		return nil
	}
	roots := make(map[int]bool, len(all))
	for _, s := range all {
		roots[s.box.PID()] = true
	}
	families, written := familiesOf(processes, roots), make(map[*watched]int64, len(all))
	for _, s := range all {
		written[s] = ioOfProcess(s.box.PID(), "write_bytes")
		for _, pid := range families[s.box.PID()] {
			written[s] += ioOfProcess(pid, "write_bytes")
		}
	}
	return written
}

// ioOfProcess returns a counter in /proc/PID/io, which includes children that the process has
// waited for; 0 if it is not readable.
func ioOfProcess(pid int, name string) int64 {
	io, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "io"))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(io)) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), name+": "); ok {
			return number(value)
		}
	}
	return 0
}

// fsUsage is the usage of a file system.
type fsUsage struct {
	used, free   usage
	size, inodes int64 // inodes is 0 if the file system has no fixed number of inodes
}

func statFS(path string) (fsUsage, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return fsUsage{}, &fs.PathError{Op: "statfs", Path: path, Err: err}
	}
	block := st.Frsize
	if block == 0 {
		block = st.Bsize
	}
	return fsUsage{
		used: usage{int64(st.Blocks-st.Bfree) * block, int64(st.Files - st.Ffree)},
		free: usage{int64(st.Bavail) * block, int64(st.Ffree)},
		size: int64(st.Blocks) * block, inodes: int64(st.Files),
	}, nil
}

// margin returns the free space beyond the reserve; negative if the reserve is not free.
func (f fsUsage) margin(reserve int64) usage {
	m := usage{f.free.bytes - min(reserve, f.size/reserveShare), math.MaxInt64}
	if f.inodes > 0 {
		m.inodes = f.free.inodes - min(reserveInodes, f.inodes/reserveShare)
	}
	return m
}

// leastGrowth is the growth from which on a box may be ended: less than the space of a small
// reserve.
func (f fsUsage) leastGrowth(reserve int64) usage {
	return usage{min(leastGrowth, reserve/4, f.size/reserveShare/4), min(leastGrowthInodes, f.inodes/reserveShare/4)}
}

// short reports whether less than the reserve is free.
func (f fsUsage) short(reserve int64) bool {
	m := f.margin(reserve)
	return m.bytes < 0 || m.inodes < 0
}
