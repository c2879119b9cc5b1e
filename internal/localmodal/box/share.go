package box

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// The weight of the group for all boxes divides the time of CPUs between programs that compute. It does little for a program that
// is woken, works for some microseconds and sleeps again, as this server, workers and Postgres do for each line of an agent: when the
// agents are woken tens of thousands of times a second, such a program waits for a CPU each time. So the watchdog
// also looks how long the threads of this server wait. While they wait for most of the time, all boxes together have half of the CPUs, for a
// part of every few milliseconds in which the others have all. As soon as the threads do not wait, the limit is raised until there is none.

const (
	// sharePeriod is that in which the kernel counts the CPU time of all boxes while it is limited, in microseconds. The other
	// programs wait for a part of it at most.
	sharePeriod = 20_000
	// leastShare is the part of the machine's CPUs that boxes have together while the server waits.
	leastShare = 0.5
	// shareStep is by how much of the CPUs the limit is raised at a look at which the server does not wait.
	shareStep = 0.02
	// shareWaits is for how long the threads of the server wait when it is short of CPU time: so much of the time that has passed, and so
	// many times the CPU time that they use.
	shareWaits     = 0.25
	shareWaitsMore = 3
	// shareLooks is in how many looks in a row the server has to be short of CPU time. Other programs than boxes keep it waiting, too.
	shareLooks = 3
)

// schedulerTime is how long the threads of this process have run and have waited for a CPU.
type schedulerTime struct{ ran, waited time.Duration }

// readSchedulerTime reads what the kernel has counted. Threads that have ended are not counted: Go's rarely end.
func readSchedulerTime() (s schedulerTime, err error) {
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return s, err
	}
	for _, thread := range threads {
		line, err := os.ReadFile(filepath.Join("/proc/self/task", thread.Name(), "schedstat"))
		if errors.Is(err, fs.ErrNotExist) {
			continue // it has ended, or the kernel does not count
		}
		if err != nil {
			return s, err
		}
		var ran, waited int64
		if _, err := fmt.Sscan(string(line), &ran, &waited); err != nil {
			return s, fmt.Errorf("unexpected schedstat %q: %w", strings.TrimSpace(string(line)), err)
		}
		s.ran, s.waited = s.ran+time.Duration(ran), s.waited+time.Duration(waited)
	}
	return s, nil
}

// shareAccount is the part of the CPUs that all boxes may have together. Only the watchdog's goroutine uses it.
type shareAccount struct {
	before schedulerTime
	at     time.Time
	short  int     // looks in a row at which the server was short of CPU time
	share  float64 // 1: no limit; the zero value counts as that
}

// next returns the part of the CPUs that boxes may have from now on.
func (a *shareAccount) next(s schedulerTime, now time.Time) float64 {
	if a.share == 0 {
		a.share = 1
	}
	ran, waited, passed := s.ran-a.before.ran, s.waited-a.before.waited, now.Sub(a.at)
	first := a.at.IsZero() || passed > time.Minute // or there were no boxes for a while
	a.before, a.at = s, now
	switch {
	case first:
	case waited > portion(passed, shareWaits) && waited > shareWaitsMore*ran:
		if a.short++; a.short >= shareLooks {
			a.share = leastShare
		}
	default:
		a.short = 0
		a.share = min(a.share+shareStep, 1)
	}
	return a.share
}

// lookAtShare limits the CPU time of all boxes together while this server is short of it.
func (w *watchdog) lookAtShare(now time.Time) {
	times, err := readSchedulerTime()
	if err != nil {
		return // without a count there is no limit
	}
	was := w.share.share
	share := w.share.next(times, now)
	if share == was || was == 0 && share == 1 {
		return
	}
	if err := w.rt.cgroups.setShare(share); err != nil {
		w.rt.logger.Debug("could not limit the CPU time of all sandboxes", slog.Float64("share", share), slog.Any("error", err))
		return
	}
	switch {
	case was == 1 || was == 0:
		w.rt.logger.Info("sandboxes share fewer CPUs: the server waits for CPU time", slog.Float64("share", share))
	case share == 1:
		w.rt.logger.Info("sandboxes share all CPUs again")
	}
}

// setShare has all boxes together use that part of the machine's CPUs at most. Version 1 of the interface refuses it while a box has a limit
// that is higher.
func (c *cgroups) setShare(share float64) error {
	c.sharing.Lock()
	defer c.sharing.Unlock()
	return c.writeShare(share)
}

// writeShare needs sharing.
func (c *cgroups) writeShare(share float64) error {
	quota := int64(share * float64(runtime.NumCPU()) * sharePeriod)
	if c.version == 2 {
		most := strconv.FormatInt(quota, 10)
		if share >= 1 {
			most = "max"
		}
		return write(c.groups[""], "cpu.max", fmt.Sprintf("%s %d", most, sharePeriod))
	}
	if share >= 1 {
		quota = -1
	} else if err := write(c.groups["cpu"], "cpu.cfs_period_us", strconv.Itoa(sharePeriod)); err != nil {
		return err
	}
	return write(c.groups["cpu"], "cpu.cfs_quota_us", strconv.FormatInt(quota, 10))
}
