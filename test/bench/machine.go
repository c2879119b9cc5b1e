package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// machine is where it was measured.
type machine struct {
	cpu, kernel, postgres, revision string
	cores                           int
	memoryGiB                       float64
	at                              time.Time
	before                          string // load averages, when nothing of ours ran
}

func readMachine(ctx context.Context) machine {
	m := machine{cores: runtime.NumCPU(), cpu: "unknown", at: time.Now().UTC(), before: loadAverage()}
	if raw, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(raw)) {
			if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
				m.cpu = strings.TrimSpace(value)
				break
			}
		}
	}
	if raw, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		m.kernel = strings.TrimSpace(string(raw))
	}
	if raw, err := os.ReadFile("/proc/meminfo"); err == nil {
		var kilobytes float64
		if _, err := fmt.Sscanf(string(raw), "MemTotal: %f kB", &kilobytes); err == nil {
			m.memoryGiB = kilobytes / (1 << 20)
		}
	}
	if raw, err := exec.CommandContext(ctx, "git", "describe", "--tags", "--always").Output(); err == nil {
		m.revision = strings.TrimSpace(string(raw))
	}
	return m
}

// loadAverage is the load of the last minute, five minutes and quarter of an hour.
func loadAverage() string {
	raw, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	return strings.Join(strings.Fields(string(raw))[:3], " ")
}

// ticksPerSecond is the unit of the times in /proc: USER_HZ, which is 100 wherever Linux runs.
const ticksPerSecond = 100

// usage is processor time, as seconds or, behind since, as a number of cores.
type usage struct{ system, bench, others float64 }

// since is the mean number of cores that were used for a while.
func (u usage) since(before usage, elapsed time.Duration) usage {
	s := elapsed.Seconds()
	return usage{(u.system - before.system) / s, (u.bench - before.bench) / s, (u.others - before.others) / s}
}

// readUsage is the processor time until now of the system with all its sandboxes, of this program,
// and of everybody else.
func readUsage(system int) usage {
	var all float64
	if raw, err := os.ReadFile("/proc/stat"); err == nil {
		line, _, _ := strings.Cut(string(raw), "\n")
		for i, field := range strings.Fields(line)[1:] {
			if i != 3 && i != 4 && i < 8 { // not idle, not waiting for a disk; guests are counted with user
				ticks, _ := strconv.ParseFloat(field, 64) // the kernel writes numbers
				all += ticks
			}
		}
	}
	table := readProcesses()
	var u usage
	for pid, p := range table {
		if pid == os.Getpid() {
			u.bench = p.ticks / ticksPerSecond
		} else if table.descends(pid, system) {
			u.system += p.ticks / ticksPerSecond
		}
	}
	u.others = all/ticksPerSecond - u.system - u.bench
	return u
}

type processes map[int]struct {
	parent int
	ticks  float64 // its own, and of its children that have ended
}

func readProcesses() processes {
	out := processes{}
	names, _ := filepath.Glob("/proc/[0-9]*/stat") // the pattern is good
	for _, name := range names {
		raw, err := os.ReadFile(name) //nolint:gosec // of the process table
		if err != nil {
			continue
		}
		_, rest, _ := bytes.Cut(raw, []byte(") "))
		fields := strings.Fields(string(rest))
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(name)))
		if err != nil || len(fields) < 15 {
			continue
		}
		p := out[pid]
		p.parent, _ = strconv.Atoi(fields[1]) // the kernel writes numbers
		for _, field := range fields[11:15] {
			ticks, _ := strconv.ParseFloat(field, 64) // the kernel writes numbers
			p.ticks += ticks
		}
		out[pid] = p
	}
	return out
}

func (t processes) descends(pid, ancestor int) bool {
	for ; pid > 1; pid = t[pid].parent {
		if pid == ancestor {
			return true
		}
	}
	return false
}
