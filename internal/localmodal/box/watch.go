package box

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// watchInterval is the interval between the watchdog's checks of the file system's free space
	// and, without control groups, of the memory and the CPU time of boxes.
	watchInterval = 200 * time.Millisecond
	// measureInterval and maxMeasureInterval bound the interval between counts of a box's files,
	// which doubles while they grow little; see fewMore. They are counted earlier if the file system
	// grows by half of the space that the box may still use.
	measureInterval    = 10 * time.Second
	maxMeasureInterval = time.Minute
	// measureShare and growingShare bound the share of time for counting the files of one box (one
	// in so many), while the file system does not grow and while it does.
	measureShare = 20
	growingShare = 4
	// leastGrowth and leastGrowthInodes are the growth of the file system that causes an earlier
	// count, and the amount that a box must have written to be ended because the reserve is not
	// free.
	leastGrowth       = 16 << 20
	leastGrowthInodes = 2000
	// processesAge is the maximum age of the list of the machine's processes for a regular count of
	// a box's files. Reading the list costs more than counting the files of an idle box.
	processesAge = time.Second
	// reliefTimeout bounds the wait for the deletion of an ended box's files before the next box is
	// ended.
	reliefTimeout = 30 * time.Second
	// healTime is how long boxes that no longer grow may use the reserve before the largest is
	// ended.
	healTime = 30 * time.Second
)

// Resource is a resource whose limit a box exceeded.
type Resource string

// The resources that the watchdog bounds.
const (
	Disk   Resource = "disk"
	Memory Resource = "memory"
	CPU    Resource = "cpu"
)

// ExceededError is the reason why the watchdog ended a box.
type ExceededError struct {
	Resource Resource
	Text     string
}

func (e *ExceededError) Error() string { return e.Text }

// SpaceError is returned if the free space of the data directory's file system is below the
// reserve.
type SpaceError struct{ Reserve int64 }

func (e *SpaceError) Error() string {
	return fmt.Sprintf("the file system of the data directory has less free space than its reserve of %s", mib(e.Reserve))
}

// Unwrap makes the error match ENOSPC.
func (e *SpaceError) Unwrap() error { return unix.ENOSPC }

func mib(bytes int64) string { return fmt.Sprintf("%.1f MiB", float64(bytes)/(1<<20)) }

// watchdog ends boxes that use too many resources. It runs while boxes exist.
type watchdog struct {
	rt *Runtime

	mu      sync.Mutex
	boxes   map[*Box]*watched
	running bool
	stopped bool
	stop    chan struct{}
	done    sync.WaitGroup

	// families are the processes of each box, by its init, as of the last listing. Only the
	// watchdog's goroutine uses them.
	families map[int][]int
	listed   time.Time
	lists    int // number of listings

	// Used while the reserve is not free.
	short     bool
	began     time.Time // when
	heal      time.Duration
	relieving string    // the last box that was ended
	since     time.Time // when

	cpuAt time.Time // time of the last check of CPU time

	readMemory   func() (machineMemory, error) // replaced in tests
	memoryNear   bool                          // less than twice the reserve of memory is left
	memoryBefore int64                         // available memory at the last check; only set then
	memoryEnded  time.Time                     // when a box was last ended for it
}

// watched is the watchdog's record of a box. Only its goroutine uses it.
type watched struct {
	box      *Box
	baseline usage        // usage of a copied root when the box started
	counted  usage        // as of the last count, without the baseline
	mark     usage        // as of the last count that ended while the reserve was free
	marked   atomic.Int64 // bytes of mark, for tests
	written  int64        // bytes that its processes had written when the reserve ceased to be free
	at       time.Time
	took     time.Duration
	interval time.Duration
	fsUsed   usage // usage of the file system at the last count
	memory   memoryAccount
	cpu      cpuAccount
}

func newWatchdog(rt *Runtime) *watchdog {
	return &watchdog{rt: rt, boxes: map[*Box]*watched{}, stop: make(chan struct{}), heal: healTime, readMemory: readMachineMemory}
}

// add starts watching a box. A copied root is counted in its current state.
func (w *watchdog) add(b *Box) error {
	state := &watched{box: b, interval: measureInterval, at: time.Now()}
	if b.rt.copies {
		var err error
		if state.baseline, err = measure(b.files(), func(usage) bool { return false }); err != nil {
			return fmt.Errorf("count files: %w", err)
		}
	}
	if now, err := statFS(w.rt.dir); err == nil {
		state.fsUsed = now.used
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stopped {
		return errors.New("the runtime is closed")
	}
	w.boxes[b] = state
	if !w.running {
		w.running = true
		w.done.Go(w.run)
	}
	return nil
}

func (w *watchdog) remove(b *Box) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.boxes, b)
}

func (w *watchdog) close() {
	w.mu.Lock()
	if !w.stopped {
		w.stopped = true
		close(w.stop)
	}
	w.mu.Unlock()
	w.done.Wait()
}

// list returns the boxes; if there are none, the goroutine must end.
func (w *watchdog) list() []*watched {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.boxes) == 0 {
		w.running = false
		return nil
	}
	all := make([]*watched, 0, len(w.boxes))
	for _, state := range w.boxes {
		all = append(all, state)
	}
	return all
}

func (w *watchdog) run() {
	ticker := time.NewTicker(watchInterval)
	defer ticker.Stop()
	for {
		select {
		case <-w.stop:
			return
		case <-ticker.C:
		}
		all := w.list()
		if all == nil {
			return
		}
		w.look(all, time.Now())
	}
}

// look performs the checks that are due.
func (w *watchdog) look(all []*watched, now time.Time) {
	if w.rt.cgroups == nil {
		w.lookAtProcesses(all, now)
	}
	space, err := statFS(w.rt.dir)
	if err != nil {
		w.rt.logger.Warn("free disk space unknown", slog.Any("error", err))
		return
	}
	if space.short(w.rt.limits.Reserve) {
		w.relieve(all, space, now)
		return
	}
	if w.short {
		for _, state := range all {
			state.setMark()
		}
		w.short = false
	}
	for _, state := range all {
		oldest := now
		switch {
		case state.isTime(now):
			oldest = now.Add(-processesAge)
		case !state.grows(space, w.rt.limits.Reserve, now):
			continue
		}
		w.count(state, space.used, oldest)
		// A count that ends after the reserve has been used may include the files that used it.
		if after, err := statFS(w.rt.dir); err == nil && !after.short(w.rt.limits.Reserve) {
			state.setMark()
			w.rt.logger.Debug("counted the files of a sandbox", slog.String("sandbox_id", state.box.id),
				slog.Int64("bytes", state.mark.bytes), slog.Int64("inodes", state.mark.inodes))
		}
	}
}

func (s *watched) setMark() {
	s.mark = s.counted
	s.marked.Store(s.mark.bytes)
}

// isTime reports whether the files of a box are due for a count, regardless of the file system's
// growth.
func (s *watched) isTime(now time.Time) bool {
	return now.Sub(s.at) >= max(s.interval, measureShare*s.took)
}

// grows reports whether the files must be counted because the file system has grown.
func (s *watched) grows(space fsUsage, reserve int64, now time.Time) bool {
	passed := now.Sub(s.at)
	grown, margin := space.used.minus(s.fsUsed), space.margin(reserve)
	left := usage{s.box.limits.Disk, s.box.limits.Inodes}.minus(s.counted)
	return passed >= growingShare*s.took &&
		(grown.bytes >= max(min(left.bytes, margin.bytes)/2, leastGrowth) || grown.inodes >= max(min(left.inodes, margin.inodes)/2, leastGrowthInodes))
}

// count counts the files of a box and ends it if there are too many. For oldest see processesOf.
func (w *watchdog) count(s *watched, used usage, oldest time.Time) {
	limits := s.box.limits
	started := time.Now()
	open := deleted(w.processesOf(s.box, oldest), w.rt.dir)
	taken := func(files usage) usage {
		return usage{files.bytes + open.bytes, files.inodes + open.inodes}.minus(s.baseline)
	}
	files, err := measure(s.box.files(), func(u usage) bool { return taken(u).exceeds(limits) })
	now := time.Now()
	switch {
	case errors.Is(err, errTooDeep):
		w.end(s, &ExceededError{Disk, errTooDeep.Error()})
		return
	case errors.Is(err, fs.ErrNotExist): // the box has just ended
	case err != nil:
		w.rt.logger.Warn("files of a sandbox could not be counted", slog.String("sandbox_id", s.box.id), slog.Any("error", err))
	}
	total := taken(files)
	if total.minus(s.counted).fewMore(usage{limits.Disk, limits.Inodes}.minus(total)) {
		s.interval = min(2*s.interval, maxMeasureInterval)
	} else {
		s.interval = measureInterval
	}
	s.counted, s.at, s.took, s.fsUsed = total, now, now.Sub(started), used
	switch {
	case total.bytes > limits.Disk:
		w.end(s, &ExceededError{Disk, fmt.Sprintf("the sandbox has written more than its limit of %s of disk", mib(limits.Disk))})
	case total.inodes > limits.Inodes:
		w.end(s, &ExceededError{Disk, fmt.Sprintf("the sandbox has made more files than its limit of %d inodes", limits.Inodes)})
	}
}

// processesOf returns the processes of a box. Without control groups they are found among all
// processes of the machine, in a list that is not older than oldest.
func (w *watchdog) processesOf(b *Box, oldest time.Time) []int {
	if w.rt.cgroups != nil {
		if pids, err := w.rt.cgroups.processes(b.id); err == nil {
			return pids
		}
	}
	if !w.listProcesses(oldest) {
		return nil
	}
	return w.families[b.PID()]
}

// listProcesses lists the processes of all boxes, unless the last list is not older than oldest.
func (w *watchdog) listProcesses(oldest time.Time) bool {
	if w.families != nil && !w.listed.Before(oldest) {
		return true
	}
	now := time.Now()
	processes, err := hostProcesses()
	if err != nil {
		return false
	}
	w.mu.Lock()
	roots := make(map[int]bool, len(w.boxes))
	for b := range w.boxes {
		roots[b.PID()] = true
	}
	w.mu.Unlock()
	w.families, w.listed = familiesOf(processes, roots), now
	w.lists++
	return true
}

// relieve ends boxes, one at a time, while the reserve is not free. It first ends boxes that have
// grown since, in descending order of growth. If no box has grown, it ends the box that has written
// most since, because its writes may be hidden from the count. If no box has written for a while,
// it ends the largest box whose end frees the reserve: that box may have stopped growing just
// before the reserve, and otherwise no box could be started again. If other programs fill the file
// system, it ends no further box.
func (w *watchdog) relieve(all []*watched, space fsUsage, now time.Time) {
	if !w.short {
		written := writtenBy(all)
		for _, s := range all {
			s.written = written[s]
		}
		w.began = now
	}
	w.short = true
	if w.relieving != "" && now.Sub(w.since) < reliefTimeout && !w.rt.discarded(w.relieving) {
		return
	}
	w.relieving = ""
	inodes := space.margin(w.rt.limits.Reserve).bytes >= 0 // otherwise bytes are short
	part := func(u usage) int64 {
		if inodes {
			return u.inodes
		}
		return u.bytes
	}
	least := part(space.leastGrowth(w.rt.limits.Reserve))
	growth := func(s *watched) int64 { return part(s.counted.minus(s.mark)) }
	var grown *watched
	for _, s := range all {
		if time.Since(s.at) >= growingShare*s.took {
			w.count(s, space.used, now)
		}
		if s.box.Exceeded() != nil {
			w.relieving, w.since = s.box.id, now
			return
		}
		if growth(s) >= least && (grown == nil || growth(s) > growth(grown)) {
			grown = s
		}
	}
	worst, why := grown, "grew most"
	if worst == nil && !inodes {
		why = "wrote most"
		written := writtenBy(all)
		for _, s := range all {
			if more := written[s] - s.written; more >= least && (worst == nil || more > written[worst]-worst.written) {
				worst = s
			}
		}
	}
	if worst == nil && now.Sub(w.began) >= w.heal {
		why = "is the largest"
		missing := -part(space.margin(w.rt.limits.Reserve))
		for _, s := range all {
			if size := part(s.counted); size >= missing && (worst == nil || size > part(worst.counted)) {
				worst = s
			}
		}
	}
	if worst == nil {
		return
	}
	w.relieving, w.since = worst.box.id, now
	w.end(worst, &ExceededError{Disk, fmt.Sprintf("the machine's disk is nearly full (%s and %d inodes are free), and the sandbox %s: it has written %s in %d files",
		mib(space.free.bytes), space.free.inodes, why, mib(worst.counted.bytes), worst.counted.inodes)})
}

// discarded reports whether all files of a box are deleted.
func (r *Runtime) discarded(id string) bool {
	if _, err := os.Lstat(r.boxPath(id)); !errors.Is(err, fs.ErrNotExist) {
		return false
	}
	entries, err := os.ReadDir(filepath.Join(r.dir, "trash"))
	return err == nil && len(entries) == 0
}

// lookAtProcesses replaces control groups where they are not available.
func (w *watchdog) lookAtProcesses(all []*watched, now time.Time) {
	processes, err := hostProcesses()
	if err != nil {
		w.rt.logger.Warn("memory and CPU time of sandboxes unknown", slog.Any("error", err))
		return
	}
	roots := make(map[int]bool, len(all))
	for _, s := range all {
		roots[s.box.PID()] = true
	}
	families := familiesOf(processes, roots)
	w.lookAtMemory(all, processes, families, now)
	w.lookAtCPU(all, processes, families, now)
}

// end ends a box for a reason. Its processes have ended when it returns.
func (w *watchdog) end(s *watched, why *ExceededError) {
	if !s.box.exceeded.CompareAndSwap(nil, why) {
		return
	}
	w.rt.logger.Warn("ending a sandbox that exceeded a limit", slog.String("sandbox_id", s.box.id),
		slog.String("resource", string(why.Resource)), slog.String("reason", why.Text))
	s.box.Kill()
	w.remove(s.box)
}

// Exceeded returns why the watchdog ended the box; nil if it did not.
func (b *Box) Exceeded() *ExceededError { return b.exceeded.Load() }

// files returns the directory with the files that the box has written.
func (b *Box) files() string {
	if b.rt.copies {
		return b.rt.treePath(b.id)
	}
	return b.rt.boxPath(b.id) // contains only files written by the box
}

// RequireSpace returns a *SpaceError if the reserve is not free.
func (r *Runtime) RequireSpace() error {
	space, err := statFS(r.dir)
	if err != nil {
		return err
	}
	if space.short(r.limits.Reserve) {
		return &SpaceError{min(r.limits.Reserve, space.size/reserveShare)}
	}
	return nil
}
