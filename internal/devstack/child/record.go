package child

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// record identifies a process uniquely, even after its id is reused.
type record struct {
	PID        int    `json:"pid"`
	BootID     string `json:"bootId"`     // id of the boot in which it was started
	StartTicks uint64 `json:"startTicks"` // since boot, field 22 of /proc/PID/stat
	Executable string `json:"executable"` // target of /proc/PID/exe
	StopSignal int    `json:"stopSignal"` // signal that requests its end
}

// recordOf describes a running process.
func recordOf(pid int, stop syscall.Signal) (record, error) {
	r, err := startOf(pid, stop)
	if err != nil {
		return record{}, err
	}
	executable, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
	if err != nil {
		return record{}, fmt.Errorf("read executable of process %d: %w", pid, err)
	}
	// A program that was rebuilt in the meantime still matches.
	r.Executable = strings.TrimSuffix(executable, " (deleted)")
	return r, nil
}

// startOf returns the part of a record that remains valid until the last thread of the process
// ends.
func startOf(pid int, stop syscall.Signal) (record, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return record{}, fmt.Errorf("read boot id: %w", err)
	}
	ticks, err := startTicks(pid)
	if err != nil {
		return record{}, err
	}
	return record{PID: pid, BootID: strings.TrimSpace(string(boot)), StartTicks: ticks, StopSignal: int(stop)}, nil
}

// running reports whether the recorded process, and no other, is running. A zombie is not.
func (r record) running() bool {
	now, err := recordOf(r.PID, syscall.Signal(r.StopSignal))
	return err == nil && now == r
}

// exists reports whether the recorded process, and no other, is running or about to end. An ending
// process no longer has an executable, but still has its files, including the ports that it listens
// on.
func (r record) exists() bool {
	now, err := startOf(r.PID, syscall.Signal(r.StopSignal))
	if err != nil {
		return false
	}
	_, err = os.Readlink(fmt.Sprintf("/proc/%d/exe", r.PID))
	ending := r
	ending.Executable = ""
	return errors.Is(err, fs.ErrNotExist) && now == ending || r.running()
}

// write saves the record atomically.
func (r record) write(path string) error {
	content, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encode process record: %w", err)
	}
	part := path + ".part"
	if err := os.WriteFile(part, content, 0o600); err != nil {
		return fmt.Errorf("write process record: %w", err)
	}
	if err := os.Rename(part, path); err != nil {
		return fmt.Errorf("write process record: %w", err)
	}
	return nil
}

func readRecord(path string) (record, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return record{}, fmt.Errorf("read process record: %w", err)
	}
	var r record
	if err := json.Unmarshal(content, &r); err != nil {
		return record{}, fmt.Errorf("read process record %s: %w", path, err)
	}
	return r, nil
}

func recordPath(runDir, name string) string { return filepath.Join(runDir, name+".json") }

// startTicks returns when a process was started.
func startTicks(pid int) (uint64, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, fmt.Errorf("read status of process %d: %w", pid, err)
	}
	// The second field is the name in parentheses, which may contain any character; the rest is
	// regular.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	const startTime = 22 - 3 // the first of the rest is field 3
	if len(fields) <= startTime {
		return 0, fmt.Errorf("read status of process %d: unknown format", pid)
	}
	return strconv.ParseUint(string(fields[startTime]), 10, 64)
}
