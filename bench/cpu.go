package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// component is a part of the system, or another user of the machine.
type component string

// Components of a system. The agent includes everything that the runner's daemon starts.
const (
	agentCPU      component = "agent"
	runnerCPU     component = "runner and links"
	localModalCPU component = "local Modal"
	workerCPU     component = "worker"
	apiCPU        component = "api"
	postgresCPU   component = "Postgres"
	temporalCPU   component = "Temporal"
	supervisorCPU component = "supervisor" // overwinter dev itself
	benchCPU      component = "bench"
	othersCPU     component = "others"
)

// components are those of a system, in the order of reports.
var components = []component{agentCPU, runnerCPU, localModalCPU, workerCPU, apiCPU, postgresCPU, temporalCPU, supervisorCPU}

// cpuTime is CPU time by component.
type cpuTime map[component]time.Duration

// since returns the time used since an earlier reading. A process that ended in the meantime counts
// for its parent's component, so its own may be slightly negative.
func (c cpuTime) since(before cpuTime) cpuTime {
	out := cpuTime{}
	for k, v := range c {
		out[k] = v - before[k]
	}
	return out
}

func (c cpuTime) plus(other cpuTime) cpuTime {
	out := cpuTime{}
	for _, t := range []cpuTime{c, other} {
		for k, v := range t {
			out[k] += v
		}
	}
	return out
}

// system returns the time of all components of the system except the named ones.
func (c cpuTime) system(without ...component) time.Duration {
	var sum time.Duration
	for _, k := range components {
		if !slices.Contains(without, k) {
			sum += c[k]
		}
	}
	return sum
}

// perUnit returns the time of a component for each of n units of work.
func (c cpuTime) perUnit(k component, n int) value {
	return number(c[k].Seconds()/float64(max(1, n)), seconds)
}

// addTo adds a row for each component and one for the whole system.
func (c cpuTime) addTo(s *section, what string, n int, g goal) {
	s.add("CPU per "+what+", whole system", number(c.system().Seconds()/float64(max(1, n)), seconds), g)
	for _, k := range components {
		if c[k] != 0 {
			s.add("CPU per "+what+": "+string(k), c.perUnit(k, n), noGoal)
		}
	}
}

// ticksPerSecond is the unit of the times in /proc: USER_HZ, which is 100 on every Linux.
const ticksPerSecond = 100

// readCPU returns the CPU time used so far by a system, given the process of its supervisor, by
// this program, and by everything else.
func readCPU(root int) cpuTime {
	table := readProcesses()
	out := cpuTime{}
	var known time.Duration
	for pid, p := range table {
		switch k := table.component(pid, root); {
		case k != "":
			out[k] += p.used
			known += p.used
		case pid == os.Getpid():
			out[benchCPU] += p.used
			known += p.used
		}
	}
	out[othersCPU] = readMachineTime() - known
	return out
}

// readMachineTime returns the CPU time of everything that has run on the machine.
func readMachineTime() time.Duration {
	raw, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0
	}
	var all float64
	line, _, _ := strings.Cut(string(raw), "\n")
	for i, field := range strings.Fields(line)[1:] {
		if i != 3 && i != 4 && i < 8 { // not idle, not waiting for a disk; guests are included in user
			ticks, _ := strconv.ParseFloat(field, 64) // the kernel writes numbers
			all += ticks
		}
	}
	return time.Duration(all / ticksPerSecond * float64(time.Second))
}

// process is an entry of the process table.
type process struct {
	parent int
	argv   []string
	used   time.Duration // by itself, and by its children that have ended
}

type processes map[int]process

func readProcesses() processes {
	out := processes{}
	names, _ := filepath.Glob("/proc/[0-9]*/stat") // the pattern is valid
	for _, name := range names {
		raw, err := os.ReadFile(name)
		if err != nil {
			continue
		}
		_, rest, _ := bytes.Cut(raw, []byte(") "))
		fields := strings.Fields(string(rest))
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(name)))
		if err != nil || len(fields) < 15 {
			continue
		}
		var p process
		p.parent, _ = strconv.Atoi(fields[1]) // the kernel writes numbers
		for _, field := range fields[11:15] {
			ticks, _ := strconv.ParseInt(field, 10, 64) // the kernel writes numbers
			p.used += time.Duration(ticks) * time.Second / ticksPerSecond
		}
		line, _ := os.ReadFile(filepath.Join(filepath.Dir(name), "cmdline"))
		p.argv = strings.Split(strings.TrimRight(string(line), "\x00"), "\x00")
		out[pid] = p
	}
	return out
}

// is reports whether a process runs a program, with a first argument if one is given.
func (p process) is(program string, argument ...string) bool {
	if filepath.Base(p.argv[0]) != program {
		return false
	}
	return len(argument) == 0 || len(p.argv) > 1 && p.argv[1] == argument[0]
}

// component returns the component of a process, "" for processes outside of the system. root is the
// supervisor.
func (t processes) component(pid, root int) component {
	if pid == root {
		return supervisorCPU
	}
	inRunner, aboveSelf := false, false
	for at := pid; at > 1; at = t[at].parent {
		p := t[at]
		switch {
		case p.is("overwinter-runner", "serve") && at != pid:
			aboveSelf = true
		case p.is("overwinter-runner") && at == pid:
			inRunner = true
		}
		if p.parent != root {
			continue
		}
		switch {
		case p.is("overwinter", "local-modal") && aboveSelf:
			return agentCPU
		case p.is("overwinter", "local-modal") && inRunner:
			return runnerCPU
		case p.is("overwinter", "local-modal"):
			return localModalCPU
		case p.is("overwinter", "worker"):
			return workerCPU
		case p.is("overwinter", "api"):
			return apiCPU
		case p.is("overwinter-temporal"):
			return temporalCPU
		}
		return postgresCPU // the only child whose program depends on the installation
	}
	return ""
}

// child returns the process of a component that the supervisor started, 0 if there is none.
func (t processes) child(k component, root int) int {
	for pid, p := range t {
		if p.parent == root && t.component(pid, root) == k {
			return pid
		}
	}
	return 0
}
