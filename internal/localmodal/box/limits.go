package box

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Limits bound what one box takes of the machine. Where control groups can be had, the kernel enforces
// all of them, and all boxes together stay within the machine's memory less a quarter of it and within
// maxAllProcesses. Elsewhere the number of processes alone is bounded, by the kernel's count of a user
// namespace.
type Limits struct {
	// Processes is how many processes and threads may exist at once. Default 8192.
	Processes int
	// Memory is bytes. A box that reaches it loses a process to the kernel. Default: three quarters of
	// the machine's memory.
	Memory int64
	// CPUs is how many CPUs' worth of time may be used. Default: all of them, with half the weight of
	// other programs.
	CPUs float64
}

const (
	defaultProcesses = 8192
	maxAllProcesses  = 32768
	leastProcesses   = 64
	leastMemory      = 128 << 20
	leastCPUs        = 0.01
)

// Check names the first limit that is out of bounds. Zero is the default.
func (l Limits) Check() error {
	switch {
	case l.Processes != 0 && (l.Processes < leastProcesses || l.Processes > maxAllProcesses):
		return fmt.Errorf("a sandbox's limit of %d processes is not between %d and %d", l.Processes, leastProcesses, maxAllProcesses)
	case l.Memory != 0 && l.Memory < leastMemory:
		return fmt.Errorf("a sandbox's limit of %d bytes of memory is less than %d", l.Memory, int64(leastMemory))
	case l.CPUs != 0 && l.CPUs < leastCPUs:
		return fmt.Errorf("a sandbox's limit of %v CPUs is less than %v", l.CPUs, leastCPUs)
	}
	return nil
}

// withDefaults fills in what is not given.
func (l Limits) withDefaults() Limits {
	if l.Processes == 0 {
		l.Processes = defaultProcesses
	}
	if l.Memory == 0 {
		l.Memory = allMemory()
	}
	return l
}

// narrowed is l, with what o bounds more narrowly.
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
	return l
}

// allMemory is what all boxes may have together: the rest is for Postgres, Temporal and the user.
func allMemory() int64 {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return 1 << 30
	}
	total := int64(info.Totalram) * int64(info.Unit) //nolint:gosec // a machine's memory
	return max(total/4*3, leastMemory)
}
