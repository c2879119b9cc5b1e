package box

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// cgroups are the control groups of a Runtime's boxes: a group for all boxes and one below it for
// each. Version 2 of the interface has one directory for a group, version 1 one per controller.
type cgroups struct {
	version int
	groups  map[string]string // directory of the group for all boxes, by controller; "" in version 2
}

// controllers are the controllers that the boxes use.
var controllers = []string{"memory", "pids", "cpu"}

// openCgroups creates the group for all boxes of a data directory, or returns why it cannot.
func openCgroups(dir string) (*cgroups, error) {
	places, err := findCgroups()
	if err != nil {
		return nil, err
	}
	owner, err := thisOwner()
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256([]byte(dir))
	name := owner.name(hex.EncodeToString(sum[:8]))
	c, err := openUnified(places, name)
	if err != nil {
		var errV1 error
		if c, errV1 = openControllers(places, name); errV1 != nil {
			return nil, fmt.Errorf("version 2: %w; version 1: %w", err, errV1)
		}
	}
	if err := c.removeLeftOver(); err != nil {
		return nil, err
	}
	c.removeAbandoned(owner, groupPrefix+hex.EncodeToString(sum[:8]))
	weight, err := c.weightOfAll()
	if err == nil {
		err = c.set(c.groups, Limits{Processes: maxAllProcesses, Memory: allMemory()}, weight)
	}
	if err != nil {
		return nil, err
	}
	return c, nil
}

// ordinaryWeight returns the default CPU weight of a process or a group, relative to the others in
// the same group, and the largest weight of a group. The units depend on the version.
func (c *cgroups) ordinaryWeight() (weight, largest int) {
	if c.version == 2 {
		return 100, 10_000
	}
	return 1024, 262_144
}

// weightOfAll returns the weight of the group for all boxes. Competing with processes, it is that
// of one process on each CPU, since a group's weight is divided among the CPUs on which it runs.
// Competing only with groups, it is that of another group.
func (c *cgroups) weightOfAll() (int, error) {
	group := c.groups[""]
	if c.version == 1 {
		group = c.groups["cpu"]
	}
	processes, err := os.ReadFile(filepath.Join(filepath.Dir(group), "cgroup.procs"))
	if err != nil {
		return 0, err
	}
	weight, largest := c.ordinaryWeight()
	if len(processes) > 0 {
		weight = min(weight*runtime.NumCPU(), largest)
	}
	return weight, nil
}

// cgroupPlace is the group of this process in one hierarchy.
type cgroupPlace struct{ mount, own string }

// findCgroups returns the place of this process in the unified hierarchy, under "", and in those of
// version 1, by controller.
func findCgroups() (map[string]cgroupPlace, error) {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	// For each hierarchy, the mount that shows the largest part of it.
	type mount struct{ root, point string }
	points := map[string]mount{}
	for line := range strings.Lines(string(mounts)) {
		before, after, ok := strings.Cut(line, " - ")
		fields, types := strings.Fields(before), strings.Fields(after)
		if !ok || len(fields) < 5 || len(types) < 3 {
			continue
		}
		m := mount{fields[3], fields[4]}
		switch types[0] {
		case "cgroup2":
			points[""] = m
		case "cgroup":
			for _, option := range strings.Split(types[2], ",") {
				if slices.Contains(controllers, option) {
					points[option] = m
				}
			}
		}
	}
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil, err
	}
	places := map[string]cgroupPlace{}
	for line := range strings.Lines(strings.TrimSpace(string(own))) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		for _, controller := range strings.Split(parts[1], ",") {
			m, ok := points[controller]
			if !ok {
				continue
			}
			path, below := strings.CutPrefix(parts[2], strings.TrimSuffix(m.root, "/"))
			if !below {
				path = "/" // the mount shows a different part of the hierarchy
			}
			places[controller] = cgroupPlace{mount: m.point, own: filepath.Join(m.point, path)}
		}
	}
	return places, nil
}

// openUnified creates the group in version 2, below the nearest group above this process that can
// delegate the controllers. A group that contains processes cannot delegate.
func openUnified(places map[string]cgroupPlace, name string) (*cgroups, error) {
	place, ok := places[""]
	if !ok {
		return nil, errors.New("not mounted")
	}
	var reasons []error
	for dir := place.own; ; dir = filepath.Dir(dir) {
		err := makeUnified(dir, name)
		if err == nil {
			return &cgroups{version: 2, groups: map[string]string{"": filepath.Join(dir, name)}}, nil
		}
		reasons = append(reasons, err)
		if dir == place.mount || !strings.HasPrefix(dir, place.mount) {
			return nil, errors.Join(reasons...)
		}
	}
}

func makeUnified(dir, name string) error {
	// Moving a process requires write access to the common ancestor.
	if err := unix.Access(filepath.Join(dir, "cgroup.procs"), unix.W_OK); err != nil {
		return &fs.PathError{Op: "access", Path: filepath.Join(dir, "cgroup.procs"), Err: err}
	}
	if err := delegate(dir); err != nil {
		return err
	}
	group := filepath.Join(dir, name)
	if err := os.Mkdir(group, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := delegate(group); err != nil {
		return errors.Join(err, os.Remove(group))
	}
	return nil
}

// delegate enables the controllers in the groups below a group.
func delegate(group string) error {
	file := filepath.Join(group, "cgroup.subtree_control")
	have, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	for _, controller := range controllers {
		if !slices.Contains(strings.Fields(string(have)), controller) {
			if err := os.WriteFile(file, []byte("+"+controller), 0o600); err != nil {
				return err
			}
		}
	}
	return nil
}

// openControllers creates the groups in version 1.
func openControllers(places map[string]cgroupPlace, name string) (*cgroups, error) {
	c := &cgroups{version: 1, groups: map[string]string{}}
	for _, controller := range controllers {
		place, ok := places[controller]
		if !ok {
			return nil, fmt.Errorf("controller %s is not mounted", controller)
		}
		group := filepath.Join(place.own, name)
		if err := os.Mkdir(group, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
		c.groups[controller] = group
	}
	return c, nil
}

// removeLeftOver removes the groups of boxes that ended with an earlier server. A group that cannot
// be removed still contains processes that are ending, which the caller has killed.
func (c *cgroups) removeLeftOver() error {
	for _, group := range c.groups {
		entries, err := os.ReadDir(group)
		if err != nil {
			return err
		}
		for _, e := range entries {
			if e.IsDir() {
				_ = removeGroup(filepath.Join(group, e.Name()))
			}
		}
	}
	return nil
}

// removeGroup removes the group of a box and the groups that its processes have created.
func removeGroup(group string) error {
	groups, err := groupsBelow(group)
	if err != nil {
		return err
	}
	for _, g := range slices.Backward(groups) {
		if err := os.Remove(g); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// maxGroups bounds the groups that are visited for one box. In version 2 its processes cannot
// create any.
const maxGroups = 1000

// groupsBelow returns a group and all groups below it, each before its children.
func groupsBelow(group string) ([]string, error) {
	groups := []string{group}
	for i := 0; i < len(groups); i++ {
		entries, err := os.ReadDir(groups[i])
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			if e.IsDir() {
				groups = append(groups, filepath.Join(groups[i], e.Name()))
			}
		}
		if len(groups) > maxGroups {
			return nil, fmt.Errorf("control group %s: more than %d groups below it", group, maxGroups)
		}
	}
	return groups, nil
}

// forbidGroups prevents processes in the group inside a box's group from creating further ones, in
// which they would be overlooked and whose limits they could set. Version 1 cannot do that.
func forbidGroups(group string) error {
	for file, most := range map[string]string{"cgroup.max.descendants": "1", "cgroup.max.depth": "1"} {
		if err := write(group, file, most); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("limit control groups: %w", err)
		}
	}
	return nil
}

// groupOwner is the process that owns a group. A process of another PID namespace or an earlier
// boot cannot be identified here.
type groupOwner struct {
	namespace uint64 // inode of its PID namespace
	pid       int
	started   uint64 // start time in clock ticks since boot, which distinguishes it from a later process with the same PID
}

const groupPrefix = "overwinter-"

func (o groupOwner) name(dir string) string {
	return fmt.Sprintf("%s%d-%d-%d-%s", groupPrefix, o.namespace, o.pid, o.started, dir)
}

// parseOwner parses the name of a group; false for the group of an earlier version or of another
// program.
func parseOwner(name string) (o groupOwner, ok bool) {
	parts := strings.Split(strings.TrimPrefix(name, groupPrefix), "-")
	if !strings.HasPrefix(name, groupPrefix) || len(parts) != 4 {
		return o, false
	}
	var errs [3]error
	o.namespace, errs[0] = strconv.ParseUint(parts[0], 10, 64)
	o.pid, errs[1] = strconv.Atoi(parts[1])
	o.started, errs[2] = strconv.ParseUint(parts[2], 10, 64)
	return o, errors.Join(errs[:]...) == nil
}

func thisOwner() (groupOwner, error) {
	var st unix.Stat_t
	if err := unix.Stat("/proc/self/ns/pid", &st); err != nil {
		return groupOwner{}, &fs.PathError{Op: "stat", Path: "/proc/self/ns/pid", Err: err}
	}
	started, err := startOf(os.Getpid())
	return groupOwner{namespace: st.Ino, pid: os.Getpid(), started: started}, err
}

// startOf returns when a process started.
func startOf(pid int) (uint64, error) {
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	if len(fields) < 20 {
		return 0, errors.New("unexpected /proc/PID/stat")
	}
	return strconv.ParseUint(fields[19], 10, 64)
}

// gone reports whether the owner of a group has ended, as seen by a process of the same PID
// namespace.
func (o groupOwner) gone(self groupOwner) bool {
	if o.namespace != self.namespace {
		return false
	}
	started, err := startOf(o.pid)
	return errors.Is(err, fs.ErrNotExist) || err == nil && started != o.started
}

// removeAbandoned removes the groups of servers that were killed, for any data directory. The
// kernel refuses to remove a group that contains processes. earlier is the name of the group that a
// version without owners used for this data directory.
func (c *cgroups) removeAbandoned(self groupOwner, earlier string) {
	for _, group := range c.groups {
		parent := filepath.Dir(group)
		entries, err := os.ReadDir(parent)
		if err != nil {
			continue // the next server tries again
		}
		for _, e := range entries {
			owner, ok := parseOwner(e.Name())
			if !e.IsDir() || e.Name() != earlier && (!ok || !owner.gone(self)) {
				continue
			}
			abandoned := &cgroups{version: c.version, groups: map[string]string{"": filepath.Join(parent, e.Name())}}
			_ = abandoned.close() // likewise
		}
	}
}

// close removes the group for all boxes, which must have ended.
func (c *cgroups) close() error {
	failed := c.removeLeftOver()
	for _, group := range c.groups {
		if err := os.Remove(group); err != nil && !errors.Is(err, fs.ErrNotExist) {
			failed = errors.Join(failed, err)
		}
	}
	return failed
}

// inside is the name of the group below a box's group that contains its processes. A process can
// create a cgroup namespace, whose root is its current group, and mount it. If that group belonged
// to the sandbox's user, the process could change its limits.
const inside = "inside"

// of returns the directories of a box's group.
func (c *cgroups) of(box string) map[string]string {
	groups := make(map[string]string, len(c.groups))
	for controller, group := range c.groups {
		groups[controller] = filepath.Join(group, box)
	}
	return groups
}

// admit creates the group of a box and moves its init into it, and thereby all processes that init
// starts.
func (c *cgroups) admit(box string, pid int, l Limits) error {
	groups := c.of(box)
	for _, group := range groups {
		if err := os.MkdirAll(filepath.Join(group, inside), 0o755); err != nil {
			return fmt.Errorf("make control group: %w", err)
		}
	}
	if c.version == 2 {
		if err := forbidGroups(groups[""]); err != nil {
			return err
		}
	}
	weight, _ := c.ordinaryWeight()
	if err := c.set(groups, l, weight); err != nil {
		return err
	}
	for _, group := range groups {
		if err := write(filepath.Join(group, inside), "cgroup.procs", strconv.Itoa(pid)); err != nil {
			return fmt.Errorf("enter control group: %w", err)
		}
	}
	return nil
}

// processes returns the processes in the group of a box and in all groups below it.
func (c *cgroups) processes(box string) ([]int, error) {
	for _, group := range c.of(box) { // each contains all of them
		groups, err := groupsBelow(filepath.Join(group, inside))
		if err != nil {
			return nil, err
		}
		var pids []int
		for _, g := range groups {
			list, err := os.ReadFile(filepath.Join(g, "cgroup.procs"))
			if err != nil {
				return nil, err
			}
			for field := range strings.FieldsSeq(string(list)) {
				pid, err := strconv.Atoi(field)
				if err != nil {
					return nil, fmt.Errorf("control group %s: %w", g, err)
				}
				pids = append(pids, pid)
			}
		}
		return pids, nil
	}
	return nil, fs.ErrNotExist
}

// count returns the number of processes and threads of a box.
func (c *cgroups) count(box string) (int, error) {
	group := c.of(box)[""]
	if c.version == 1 {
		group = c.of(box)["pids"]
	}
	text, err := os.ReadFile(filepath.Join(group, "pids.current"))
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(text)))
}

// remove removes the group of a box that has ended.
func (c *cgroups) remove(box string) error {
	var failed error
	for _, group := range c.of(box) {
		if err := removeGroup(group); err != nil && !errors.Is(err, fs.ErrNotExist) {
			failed = errors.Join(failed, err)
		}
	}
	return failed
}

// cpuPeriod is the kernel's accounting period in microseconds.
const cpuPeriod = 100_000

// set writes the limits of groups.
func (c *cgroups) set(groups map[string]string, l Limits, weight int) error {
	type setting struct{ controller, file, value string }
	quota := int64(l.CPUs * cpuPeriod)
	var settings []setting
	if c.version == 2 {
		settings = []setting{
			{"", "pids.max", strconv.Itoa(l.Processes)},
			{"", "memory.max", strconv.FormatInt(l.Memory, 10)},
			{"", "cpu.weight", strconv.Itoa(weight)},
		}
		if quota > 0 {
			settings = append(settings, setting{"", "cpu.max", fmt.Sprintf("%d %d", quota, cpuPeriod)})
		}
	} else {
		settings = []setting{
			{"pids", "pids.max", strconv.Itoa(l.Processes)},
			{"memory", "memory.limit_in_bytes", strconv.FormatInt(l.Memory, 10)},
			{"cpu", "cpu.shares", strconv.Itoa(weight)},
		}
		if quota > 0 {
			settings = append(settings, setting{"cpu", "cpu.cfs_period_us", strconv.Itoa(cpuPeriod)},
				setting{"cpu", "cpu.cfs_quota_us", strconv.FormatInt(quota, 10)})
		}
	}
	for _, s := range settings {
		if err := write(groups[s.controller], s.file, s.value); err != nil {
			return fmt.Errorf("limit sandbox: %w", err)
		}
	}
	// Memory beyond the limit must not move to unlimited swap.
	for file, value := range map[string]string{"memory.swap.max": "0", "memory.swappiness": "0"} {
		group := groups[""]
		if c.version == 1 {
			group = groups["memory"]
		}
		if err := write(group, file, value); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("limit sandbox: %w", err)
		}
	}
	return nil
}

// write writes to an existing file of a control group.
func write(group, file, value string) error {
	f, err := os.OpenFile(filepath.Join(group, file), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}
