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

// Where no control groups bound CPU time, the watchdog adds up what the processes of a box use, and stops them all for
// as long as it takes to be within the limit again. Init is not stopped: the control socket works, and requests to
// start a process wait.

const (
	// cpuBurst is for how long a box may save up time that it does not use.
	cpuBurst = 500 * time.Millisecond
	// maxPause bounds a pause: it is the silence that clients of programs in the box have to bear.
	maxPause = 10 * time.Second
	// maxFailedPauses is how often in a row stopping a box may fail before it is ended.
	maxFailedPauses = 3
	// cpuShare is the part of the machine's CPUs that boxes have by default, each and together.
	cpuShare = 0.75
	// tick is the unit of CPU time in /proc.
	tick = 10 * time.Millisecond
)

// cpuTime is what a process has used, and what those of its children have used that have ended and that it has waited
// for, with theirs.
type cpuTime struct{ own, children time.Duration }

func ticks(field string) time.Duration {
	n, err := strconv.ParseInt(field, 10, 64)
	if err != nil {
		return 0
	}
	return time.Duration(n) * tick
}

// cpuAccount is how much CPU time a box has used. Only the watchdog's goroutine uses it, except for what is atomic.
type cpuAccount struct {
	seen   map[int]hostProcess // by PID, at the last look
	debt   time.Duration       // above the limit; below zero what it has saved up
	paused atomic.Bool
	failed atomic.Int32 // pauses in a row
}

// used returns what the family has used since the last look. The time of a process that has ended is in that of the one
// that has waited for it, less what was counted when it was alive. What a process uses that both starts and ends between two looks
// is not counted if its parent does not wait for it.
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
		if pid != root { // which is ours
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

// owe adds what was used in a time, with a limit in CPUs, and returns how long the box has to pause.
func (a *cpuAccount) owe(used, passed time.Duration, limit float64) time.Duration {
	a.debt = max(a.debt+used-portion(passed, limit), -portion(cpuBurst, limit))
	if a.debt <= 0 {
		return 0
	}
	return min(time.Duration(float64(a.debt)/limit), maxPause)
}

func portion(d time.Duration, limit float64) time.Duration { return time.Duration(float64(d) * limit) }

// fairShare is how much each may have so that all together have no more than a total; those that use less leave the rest to the
// others.
func fairShare(used []float64, total float64) float64 {
	used = slices.Sorted(slices.Values(used))
	for i, u := range used {
		share := total / float64(len(used)-i)
		if u > share {
			return share
		}
		total -= u
	}
	return total // all have what they use
}

// lookAtCPU pauses boxes that have used more CPU time than their limit, or that use most of what is too much together.
func (w *watchdog) lookAtCPU(all []*watched, processes map[int]hostProcess, families map[int][]int, now time.Time) {
	passed := now.Sub(w.cpuAt)
	if w.cpuAt.IsZero() || passed > time.Minute { // the first look, or the machine was asleep
		passed = watchInterval
	}
	w.cpuAt = now
	most := cpuShare * float64(runtime.NumCPU())
	used, rates := make([]time.Duration, len(all)), make([]float64, len(all))
	for i, s := range all {
		used[i] = s.cpu.used(s.box.PID(), families[s.box.PID()], processes)
		rates[i] = used[i].Seconds() / passed.Seconds()
	}
	share, together := fairShare(rates, most), 0.0
	for _, rate := range rates {
		together += rate
	}
	for i, s := range all {
		limit := most
		if s.box.limits.CPUs > 0 {
			limit = min(limit, s.box.limits.CPUs)
		}
		if together > most {
			limit = min(limit, share)
		}
		if pause := s.cpu.owe(used[i], passed, limit); pause > 0 {
			w.pause(s, pause)
		}
	}
}

// pause stops a box for a while, unless it is paused. It does not wait for that.
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

// pause stops every process of the box for a while, unless something else has stopped them.
func (b *Box) pause(d time.Duration, stop <-chan struct{}) error {
	if !b.snapshots.TryLock() {
		return nil
	}
	defer b.snapshots.Unlock()
	select {
	case <-b.resume: // what has come before is over
	default:
	}
	over := time.NewTimer(d)
	defer over.Stop()
	err := b.whileFrozen(func() error {
		select {
		case <-over.C:
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

// lockSnapshots locks b.snapshots, and ends a pause for that.
func (b *Box) lockSnapshots() {
	select {
	case b.resume <- struct{}{}:
	default:
	}
	b.snapshots.Lock()
}
