package box

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strconv"
	"sync/atomic"
	"time"
)

// Without control groups that bound CPU time, the watchdog sums up the CPU time of a box's
// processes, and stops all of them until the box is within its limit again. It does not stop init:
// the control socket keeps working, and requests to start a process wait.

const (
	// cpuBurst bounds the unused time that a box can accumulate.
	cpuBurst = 500 * time.Millisecond
	// maxPause bounds a pause, during which programs in the box do not respond to their clients.
	maxPause = 10 * time.Second
	// maxFailedPauses is the number of consecutive failures to stop a box after which the box is
	// ended.
	maxFailedPauses = 3
	// cpuShare is the default share of the machine's CPUs, of each box and of all boxes together.
	cpuShare = 0.75
	// tick is the unit of CPU time in /proc.
	tick = 10 * time.Millisecond
)

// cpuTime is the CPU time of a process, and that of its ended descendants that have been waited
// for.
type cpuTime struct{ own, children time.Duration }

func ticks(field string) time.Duration {
	n, err := strconv.ParseInt(field, 10, 64)
	if err != nil {
		return 0
	}
	return time.Duration(n) * tick
}

// cpuAccount records the CPU time of a box. Only the watchdog's goroutine uses it, except for
// atomic fields.
type cpuAccount struct {
	seen   map[int]hostProcess // by PID, as of the last check
	debt   time.Duration       // usage above the limit; if negative, accumulated unused time
	paused atomic.Bool
	failed atomic.Int32 // consecutive failed pauses
}

// used returns the CPU time of the family since the last check. The time of an ended process is
// included in that of the process that waited for it, minus what was counted while it was alive. A
// process that both starts and ends between two checks is not counted if its parent does not wait
// for it.
func (a *cpuAccount) used(root int, family []int, processes map[int]hostProcess) time.Duration {
	now := make(map[int]hostProcess, len(family)+1)
	var own, children, gone time.Duration
	for _, pid := range append([]int{root}, family...) {
		p, ok := processes[pid]
		if !ok {
			continue
		}
		now[pid] = p
		before := a.seen[pid]
		if before.started != p.started {
			before = hostProcess{}
		}
		if pid != root { // init is ours
			own += p.time.own - before.time.own
		}
		children += p.time.children - before.time.children
	}
	for pid, before := range a.seen {
		if now[pid].started != before.started {
			gone += before.time.own + before.time.children
		}
	}
	a.seen = now
	return max(own, 0) + max(children-gone, 0)
}

// charge adds the time used in a period, with a limit in CPUs, and returns how long the box must
// pause.
func (a *cpuAccount) charge(used, passed time.Duration, limit float64) time.Duration {
	a.debt = max(a.debt+used-portion(passed, limit), -portion(cpuBurst, limit))
	if a.debt <= 0 {
		return 0
	}
	return min(time.Duration(float64(a.debt)/limit), maxPause)
}

func portion(d time.Duration, limit float64) time.Duration { return time.Duration(float64(d) * limit) }

// fairShare returns the share for each user so that their sum does not exceed total; the unused
// part of a share is distributed among the other users.
func fairShare(used []float64, total float64) float64 {
	used = slices.Sorted(slices.Values(used))
	for i, u := range used {
		share := total / float64(len(used)-i)
		if u > share {
			return share
		}
		total -= u
	}
	return total // all fit into the total
}

// lookAtCPU pauses boxes that have used more CPU time than their limit, or that use most of a total
// that is too high.
func (w *watchdog) lookAtCPU(all []*watched, processes map[int]hostProcess, families map[int][]int, now time.Time) {
	passed := now.Sub(w.cpuAt)
	if w.cpuAt.IsZero() || passed > time.Minute { // the first check, or the machine was suspended
		passed = watchInterval
	}
	w.cpuAt = now
	most := cpuShare * float64(runtime.NumCPU())
	used, rates := make([]time.Duration, len(all)), make([]float64, len(all))
	for i, s := range all {
		used[i] = s.cpu.used(s.box.PID(), families[s.box.PID()], processes)
		rates[i] = used[i].Seconds() / passed.Seconds()
	}
	share, total := fairShare(rates, most), 0.0
	for _, rate := range rates {
		total += rate
	}
	for i, s := range all {
		limit := most
		if s.box.limits.CPUs > 0 {
			limit = min(limit, s.box.limits.CPUs)
		}
		if total > most {
			limit = min(limit, share)
		}
		if pause := s.cpu.charge(used[i], passed, limit); pause > 0 {
			w.pause(s, pause)
		}
	}
}

// pause stops a box for a period in the background, unless it is already paused.
func (w *watchdog) pause(s *watched, pause time.Duration) {
	if !s.cpu.paused.CompareAndSwap(false, true) {
		return
	}
	w.done.Go(func() {
		defer s.cpu.paused.Store(false)
		err := s.box.pause(pause, w.stop)
		select {
		case <-s.box.Gone():
			return
		default:
		}
		if err == nil {
			s.cpu.failed.Store(0)
			return
		}
		w.rt.logger.Warn("a sandbox that uses too much CPU time could not be paused", slog.String("sandbox_id", s.box.id), slog.Any("error", err))
		if s.cpu.failed.Add(1) >= maxFailedPauses {
			w.end(s, &ExceededError{CPU, fmt.Sprintf("the sandbox has used more than its limit of CPU time and could not be paused: %v", err)})
		}
	})
}

// pause stops every process of the box for a period, unless another operation has stopped them.
func (b *Box) pause(d time.Duration, stop <-chan struct{}) error {
	if !b.snapshots.TryLock() {
		return nil
	}
	defer b.snapshots.Unlock()
	select {
	case <-b.resume: // discard an old request
	default:
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	err := b.whileFrozen(func() error {
		select {
		case <-timer.C:
		case <-b.resume:
		case <-stop:
		case <-b.Gone():
		}
		return nil
	})
	if errors.Is(err, ErrGone) {
		return nil
	}
	return err
}

// lockSnapshots locks b.snapshots, and ends a pause to get the lock.
func (b *Box) lockSnapshots() {
	select {
	case b.resume <- struct{}{}:
	default:
	}
	b.snapshots.Lock()
}
