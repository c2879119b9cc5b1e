package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"
)

// machine describes the machine that the bench runs on.
type machine struct {
	cpu, kernel, postgres, revision string
	cores                           int
	memoryGiB                       float64
	at                              time.Time
	before                          string // load averages, before the bench started anything
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

// loadAverage returns the load averages of the last 1, 5 and 15 minutes.
func loadAverage() string {
	raw, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	return strings.Join(strings.Fields(string(raw))[:3], " ")
}
