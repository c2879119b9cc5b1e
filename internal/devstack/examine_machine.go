package devstack

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Resources of a laptop with a few sessions. Below the first value of each pair the stack will
// probably fail soon; below the second a warning is appropriate.
const (
	leastDisk, enoughDisk     = 1 << 30, 10 << 30
	leastInodes, enoughInodes = 20_000, 200_000
	leastMemory, enoughMemory = 512 << 20, 2 << 30
)

// examineSystem names the machine.
func examineSystem() Finding {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return missing("system", fmt.Sprintf("uname: %v", err))
	}
	user := "an ordinary user"
	if os.Geteuid() == 0 {
		user = "root"
	}
	return okay("system", "Linux %s, %s, %d CPUs, as %s", unix.ByteSliceToString(name.Release[:]), runtime.GOARCH, runtime.NumCPU(), user)
}

// examineDisk checks the file system of the data directory.
func examineDisk(dir string) Finding {
	const check = "disk"
	var st unix.Statfs_t
	place := existing(dir)
	if err := unix.Statfs(place, &st); err != nil {
		return missing(check, fmt.Sprintf("%s: %v", place, err))
	}
	free := st.Bavail * uint64(st.Bsize)
	detail := fmt.Sprintf("%s free", size(free))
	if st.Files > 0 { // some file systems have no fixed number of inodes
		detail += fmt.Sprintf(", %d inodes", st.Ffree)
	}
	detail += " at " + place
	remedy := "free some, or choose another file system with --data-dir"
	inodes := st.Files > 0
	switch {
	case free < leastDisk, inodes && st.Ffree < leastInodes:
		return missing(check, detail, remedy)
	case free < enoughDisk, inodes && st.Ffree < enoughInodes:
		return warning(check, detail, remedy)
	default:
		return okay(check, "%s", detail)
	}
}

// examineMemory checks the available memory.
func examineMemory() Finding {
	const check = "memory"
	available, err := availableMemory()
	if err != nil {
		return warning(check, err.Error())
	}
	detail := size(available) + " available"
	switch {
	case available < leastMemory:
		return missing(check, detail)
	case available < enoughMemory:
		return warning(check, detail+"; an agent takes 200 to 500 MB")
	default:
		return okay(check, "%s", detail)
	}
}

func availableMemory() (uint64, error) {
	file, err := os.Open("/proc/meminfo")
	if err != nil {
		return 0, err
	}
	defer func() { _ = file.Close() }() // read only
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) == 3 && fields[0] == "MemAvailable:" {
			kib, err := strconv.ParseUint(fields[1], 10, 64)
			return kib << 10, err
		}
	}
	return 0, fmt.Errorf("/proc/meminfo has no MemAvailable: %w", lines.Err())
}

// clockUnsynchronized is STA_UNSYNC of adjtimex(2).
const clockUnsynchronized = 0x40

// examineClock asks the kernel whether its clock is synchronized. Temporal's timers and the
// validation of https certificates depend on the clock.
func examineClock() Finding {
	const check = "clock"
	var t unix.Timex
	if _, err := unix.Adjtimex(&t); err != nil {
		return warning(check, fmt.Sprintf("adjtimex: %v", err))
	}
	if t.Status&clockUnsynchronized != 0 {
		return warning(check, "the kernel reports it as not synchronized", "sudo timedatectl set-ntp true (in a virtual machine, the host may synchronize it)")
	}
	return okay(check, "synchronized")
}

// examineTools looks for the programs that agents and workspaces need in addition to the stack
// itself.
func examineTools(ctx context.Context) []Finding {
	tools := []struct {
		name, purpose, remedy string
	}{
		{"npm", "fetches agents that are npm packages (Claude Code, Gemini CLI, Codex, OpenCode)", "sudo apt-get install npm"},
		{"node", "runs Gemini CLI", "install Node 20 or newer"},
		{"git", "clones the repository of a session", "sudo apt-get install git"},
	}
	findings := make([]Finding, 0, len(tools))
	for _, tool := range tools {
		findings = append(findings, examineTool(ctx, tool.name, tool.purpose, tool.remedy))
	}
	return findings
}

func examineTool(ctx context.Context, name, purpose, remedy string) Finding {
	path, err := exec.LookPath(name)
	if err != nil {
		return warning(name, "not found; it "+purpose, remedy)
	}
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	output, err := exec.CommandContext(ctx, path, "--version").Output()
	if err != nil {
		return warning(name, fmt.Sprintf("%s --version: %v; it %s", path, err, purpose), remedy)
	}
	line, _, _ := strings.Cut(strings.TrimSpace(string(output)), "\n")
	return okay(name, "%s, %s", line, path)
}

// size formats a number of bytes.
func size(n uint64) string {
	if n >= 1<<30 {
		return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
	}
	return fmt.Sprintf("%d MiB", n>>20)
}
