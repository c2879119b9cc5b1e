package box

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Limits bound the resources of one box. If control groups are available, the kernel enforces the
// limits of processes, memory and CPUs, and all boxes together stay within three quarters of the
// machine's memory and within maxAllProcesses. Otherwise the kernel bounds the number of processes
// (per user namespace), and a watchdog ends a box that exceeds its memory and pauses one that
// exceeds its CPUs. In both cases the watchdog ends a box that exceeds its disk.
type Limits struct {
	// Processes bounds the processes and threads that exist at the same time. Default 8192.
	Processes int
	// Memory is in bytes. When a box reaches it, the kernel kills one of its processes. Default:
	// three quarters of the machine's memory.
	Memory int64
	// CPUs is in units of one CPU. Default: all CPUs, with a weight for all boxes together of one
	// other program on each CPU; without control groups, three quarters of the CPUs for all boxes
	// together.
	CPUs float64
	// Disk bounds the bytes on disk that a box may add to its image. Default 10 GiB.
	Disk int64
	// Inodes bounds the files, directories and links that a box may add to its image. Default
	// 1,000,000.
	Inodes int64
	// Reserve is the number of bytes that must stay free on the file system of the data directory.
	// Below it, boxes are ended, those that grow fastest first, and none is started or saved.
	// Default 1 GiB, at most 5% of the file system.
	Reserve int64
	// MemoryReserve is the number of bytes of the machine's memory that must stay available if no
	// control groups bound boxes: below it, the largest box is ended. Default 1 GiB, at most 5% of
	// the memory.
	MemoryReserve int64
}

const (
	defaultProcesses = 8192
	maxAllProcesses  = 32768
	leastProcesses   = 64
	leastMemory      = 128 << 20
	leastCPUs        = 0.01
	defaultDisk      = 10 << 30
	defaultInodes    = 1_000_000
	leastDisk        = 1 << 20
	leastInodes      = 100
	defaultReserve   = 1 << 30
	reserveInodes    = 50_000

	defaultMemoryReserve = 1 << 30
	reserveShare         = 20 // the reserve is at most one in so many bytes of the file system
)

// Check returns an error that names the first limit that is out of bounds. Zero means the default.
func (l Limits) Check() error {
	switch {
	case l.Processes != 0 && (l.Processes < leastProcesses || l.Processes > maxAllProcesses):
		return fmt.Errorf("a sandbox's limit of %d processes is not between %d and %d", l.Processes, leastProcesses, maxAllProcesses)
	case l.Memory != 0 && l.Memory < leastMemory:
		return fmt.Errorf("a sandbox's limit of %d bytes of memory is less than %d", l.Memory, int64(leastMemory))
	case l.CPUs != 0 && l.CPUs < leastCPUs:
		return fmt.Errorf("a sandbox's limit of %v CPUs is less than %v", l.CPUs, leastCPUs)
	case l.Disk != 0 && l.Disk < leastDisk:
		return fmt.Errorf("a sandbox's limit of %d bytes of disk is less than %d", l.Disk, int64(leastDisk))
	case l.Inodes != 0 && l.Inodes < leastInodes:
		return fmt.Errorf("a sandbox's limit of %d inodes is less than %d", l.Inodes, leastInodes)
	case l.MemoryReserve < 0:
		return fmt.Errorf("the memory reserve of %d bytes is negative", l.MemoryReserve)
	case l.Reserve < 0:
		return fmt.Errorf("the disk reserve of %d bytes is negative", l.Reserve)
	}
	return nil
}

// withDefaults sets unset fields to their defaults.
func (l Limits) withDefaults() Limits {
	if l.Processes == 0 {
		l.Processes = defaultProcesses
	}
	if l.Memory == 0 {
		l.Memory = allMemory()
	}
	if l.Disk == 0 {
		l.Disk = defaultDisk
	}
	if l.Inodes == 0 {
		l.Inodes = defaultInodes
	}
	if l.Reserve == 0 {
		l.Reserve = defaultReserve
	}
	if l.MemoryReserve == 0 {
		l.MemoryReserve = defaultMemoryReserve
	}
	return l
}

// narrowed returns l with the limits of o that are narrower.
func (l Limits) narrowed(o Limits) Limits {
	if o.Processes > 0 && o.Processes < l.Processes {
		l.Processes = o.Processes
	}
	if o.Memory > 0 && o.Memory < l.Memory {
		l.Memory = max(o.Memory, leastMemory)
	}
	if o.CPUs > 0 && (l.CPUs == 0 || o.CPUs < l.CPUs) {
		l.CPUs = max(o.CPUs, leastCPUs)
	}
	if o.Disk > 0 && o.Disk < l.Disk {
		l.Disk = max(o.Disk, leastDisk)
	}
	if o.Inodes > 0 && o.Inodes < l.Inodes {
		l.Inodes = max(o.Inodes, leastInodes)
	}
	return l
}

// memoryReserve returns the reserve for a machine.
func (l Limits) memoryReserve(m machineMemory) int64 {
	return min(l.MemoryReserve, m.total/reserveShare)
}

// allMemory is the memory for all boxes together: the rest is for Postgres, Temporal and the user.
func allMemory() int64 {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return 1 << 30
	}
	total := int64(info.Totalram) * int64(info.Unit)
	return max(total/4*3, leastMemory)
}
