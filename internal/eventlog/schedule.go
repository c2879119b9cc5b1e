package eventlog

import (
	"errors"
	"slices"
	"time"

	"github.com/overwinter-dev/overwinter/internal/failure"
)

// schedule decides which appends share the next commit. Every session has a queue; the queues take
// turns, and each has at most one commit in progress, so that its appends stay in order. It
// performs no I/O, has no clock, and is not safe for concurrent use.
type schedule struct {
	options AppenderOptions
	queues  map[string]*queue
	ready   []*queue // to be committed, in turn
	busy    []*queue // skipped by a commit, or stuck in one
	waiting int      // appends in ready
	events  int      // events of those appends

	running   []*batch // except those that wait for a lock
	lockWaits int

	shared int           // appends of the latest commit that began
	large  bool          // it had so many events that a pause would not pay off
	took   time.Duration // duration of the latest commit that ended
	ended  time.Time     // when it ended

	backoff     time.Duration // backoff of all commits while Postgres is unavailable
	pausedUntil time.Time
}

// queue holds the appends of one session.
type queue struct {
	id      string
	pending []*pending // not in a commit
	held    int        // appends, including those in a commit
	bytes   int        // bytes of held
	state   queueState
	room    chan struct{} // closed when an append has left the queue; nil while no caller waits for that

	pause  time.Duration // pause between attempts while it is busy
	tryAt  time.Time     // when a commit without lock wait may include it again
	lockAt time.Time     // when a commit may wait for its lock
}

type queueState int

const (
	queueIdle queueState = iota
	queueReady
	queueBusy
	queueCommitting
)

// batch has the appends of one commit.
type batch struct {
	queues       []*queue
	pending      []*pending // in order for each queue
	of           []*queue   // the queue of each pending append
	events       int
	bytes        int
	most         int // limit on queues; 0 for none
	alone        bool
	waitsForLock bool
	begun        time.Time
}

// largeCommit is the number of events from which on a commit is large.
const largeCommit = 256

// pausePerAppend is added to the pause after a commit for each of its appends. Pauses grow to the
// maximum if about one append or more arrives per millisecond, and stay short otherwise.
const pausePerAppend = time.Millisecond

// never is the wait if no commit is due.
const never = time.Hour

// add queues an append, or returns a channel to wait for if its session's queue is full.
func (s *schedule) add(p *pending) (room <-chan struct{}) {
	q := s.queues[p.append.SessionID]
	if q == nil {
		q = &queue{id: p.append.SessionID}
		s.queues[q.id] = q
	}
	if q.held > 0 && (q.held >= s.options.MaxQueued || q.bytes+p.bytes > s.options.MaxQueuedBytes) {
		if q.room == nil {
			q.room = make(chan struct{})
		}
		return q.room
	}
	q.pending = append(q.pending, p)
	q.held++
	q.bytes += p.bytes
	switch q.state {
	case queueIdle:
		s.toReady(q)
	case queueReady:
		s.waiting++
		s.events += len(p.append.Events)
	case queueBusy, queueCommitting:
	}
	return nil
}

func (s *schedule) toReady(q *queue) {
	if len(q.pending) == 0 {
		q.state = queueIdle
		if q.held == 0 {
			delete(s.queues, q.id)
		}
		return
	}
	q.state = queueReady
	s.waiting += len(q.pending)
	for _, p := range q.pending {
		s.events += len(p.append.Events)
	}
	s.ready = append(s.ready, q)
}

// toBusy moves a queue to the busy ones, with a growing pause.
func (s *schedule) toBusy(q *queue, now time.Time) {
	q.state = queueBusy
	q.pause = min(max(2*q.pause, minBackoff), maxBackoff)
	q.tryAt = now.Add(q.pause)
	s.busy = append(s.busy, q)
}

// release removes an append whose caller has its result.
func (s *schedule) release(q *queue, p *pending) {
	q.held--
	q.bytes -= p.bytes
	if q.room != nil {
		close(q.room)
		q.room = nil
	}
}

// idle reports whether no append waits and no commit is in progress.
func (s *schedule) idle() bool {
	return len(s.ready)+len(s.busy)+len(s.running)+s.lockWaits == 0
}

// drain empties the queues.
func (s *schedule) drain() []*pending {
	var all []*pending
	for _, q := range s.queues {
		for _, p := range q.pending {
			s.release(q, p)
		}
		all = append(all, q.pending...)
		q.pending = nil
	}
	s.ready, s.busy, s.waiting, s.events = nil, nil, 0, 0
	return all
}

// next returns the commit to begin now, or how long to wait for the next check.
func (s *schedule) next(now time.Time, stopping bool) (*batch, time.Duration) {
	if pause := s.pausedUntil.Sub(now); pause > 0 {
		return nil, pause
	}
	if b := s.lockWait(now); b != nil { // first, since a session that may be stuck must not share a commit
		return b, 0
	}
	wait := s.retryBusy(now)
	for len(s.ready) > 0 {
		if pause := s.mayBegin(now, stopping); pause > 0 {
			return nil, min(wait, pause)
		}
		if b := s.gather(now); b != nil {
			s.running = append(s.running, b)
			s.shared, s.large = len(b.pending), b.events >= largeCommit
			return b, 0
		}
	}
	return nil, wait
}

// retryBusy makes queues ready whose pause has ended and returns the time of the next check.
func (s *schedule) retryBusy(now time.Time) time.Duration {
	wait := never
	all := s.busy
	s.busy = nil
	for _, q := range all {
		if !now.Before(q.tryAt) {
			s.toReady(q)
			continue
		}
		s.busy = append(s.busy, q)
		wait = min(wait, q.tryAt.Sub(now))
		if s.lockWaits < s.options.MaxLockWaits && q.lockAt.After(now) {
			wait = min(wait, q.lockAt.Sub(now))
		}
	}
	return wait
}

// lockWait returns a commit for one busy queue, which waits for its session's lock. Without it a
// session that others lock repeatedly might never be found free.
func (s *schedule) lockWait(now time.Time) *batch {
	if s.lockWaits >= s.options.MaxLockWaits {
		return nil
	}
	for i, q := range s.busy {
		if now.Before(q.lockAt) || !s.dropLeft(q) {
			continue
		}
		s.busy = slices.Delete(s.busy, i, i+1)
		b := &batch{waitsForLock: true, begun: now}
		for len(q.pending) > 0 && s.fits(b, q, q.pending[0]) {
			b.take(q)
		}
		s.lockWaits++
		return b
	}
	return nil
}

// mayBegin returns how long the next commit must wait. Commits run one after the other: the longer
// one takes, the more appends share the next. Only a slow commit is not waited for, and a large one
// runs alongside another: its events dominate its cost, and Postgres writes one while the worker
// prepares the other. After a commit that several appends shared there is a pause, which grows with
// their number, because commits dominate the cost of many small appends. Before and after a large
// commit the pause is short: only the callers that have just got a result need time to append again.
func (s *schedule) mayBegin(now time.Time, stopping bool) time.Duration {
	if len(s.running) >= s.options.MaxCommits {
		return never
	}
	if len(s.running) == 1 && s.events >= largeCommit {
		return 0
	}
	for _, b := range s.running {
		if slow := b.begun.Add(slowCommit).Sub(now); slow > 0 {
			return slow
		}
	}
	if s.shared > 1 && s.waiting < s.options.MaxBatch && !stopping {
		pause := min(max(s.took, s.options.Interval, time.Duration(s.shared)*pausePerAppend), s.options.MaxInterval)
		if s.large || s.events >= largeCommit {
			pause = s.options.Interval / 4
		}
		return s.ended.Add(pause).Sub(now)
	}
	return 0
}

// gather takes appends of the ready queues in turn while there is room; nil if the callers of all
// of them have returned.
func (s *schedule) gather(now time.Time) *batch {
	b := &batch{begun: now}
	all := s.ready
	s.ready, s.waiting, s.events = nil, 0, 0
	for _, q := range all {
		switch {
		case !s.dropLeft(q):
			s.toReady(q) // removes an empty queue
		case s.fits(b, q, q.pending[0]):
			b.take(q)
		default:
			s.toReady(q)
		}
	}
	for took := true; took; {
		took = false
		for _, q := range b.queues {
			if len(q.pending) > 0 && s.fits(b, q, q.pending[0]) {
				b.take(q)
				took = true
			}
		}
	}
	if len(b.pending) == 0 {
		return nil
	}
	return b
}

// dropLeft removes the appends whose callers have returned, and reports whether any remain.
func (s *schedule) dropLeft(q *queue) bool {
	q.pending = slices.DeleteFunc(q.pending, func(p *pending) bool {
		left := p.ctx.Err() != nil
		if left {
			s.release(q, p)
		}
		return left
	})
	return len(q.pending) > 0
}

// fits reports whether a batch has room for the next append of a queue.
func (s *schedule) fits(b *batch, q *queue, p *pending) bool {
	if len(b.pending) == 0 {
		return true
	}
	if b.alone || p.alone || len(b.pending) >= s.options.MaxBatch ||
		b.events+len(p.append.Events) > s.options.MaxEvents || b.bytes+p.bytes > s.options.MaxBytes {
		return false
	}
	most := b.most
	if p.most > 0 && (most == 0 || p.most < most) {
		most = p.most
	}
	sessions := len(b.queues)
	if q.state != queueCommitting {
		sessions++
	}
	return most == 0 || sessions <= most
}

// take moves the next append of a queue to the batch.
func (b *batch) take(q *queue) {
	p := q.pending[0]
	q.pending = q.pending[1:]
	if q.state != queueCommitting {
		b.queues = append(b.queues, q)
		q.state = queueCommitting
	}
	b.pending = append(b.pending, p)
	b.of = append(b.of, q)
	b.events += len(p.append.Events)
	b.bytes += p.bytes
	b.alone = b.alone || p.alone
	if p.most > 0 && (b.most == 0 || p.most < b.most) {
		b.most = p.most
	}
}

// finished applies the result of a commit.
func (s *schedule) finished(b *batch, verdicts []error, err error, now time.Time) {
	if b.waitsForLock {
		s.lockWaits--
	} else {
		s.running = slices.DeleteFunc(s.running, func(r *batch) bool { return r == b })
		s.took, s.ended = now.Sub(b.begun), now
	}
	again := map[*queue][]*pending{}
	busy := map[*queue]bool{}
	stalled := now.Sub(b.begun) >= stalledCommit
	for i, p := range b.pending {
		q := b.of[i]
		verdict := err
		if err == nil {
			verdict = verdicts[i]
		}
		switch {
		case err == nil && !errors.Is(verdict, ErrBusy),
			err != nil && failure.CodeOf(err) != failure.Unavailable && len(b.pending) == 1:
			p.result <- verdict
			s.release(q, p)
			continue
		case err == nil:
			busy[q] = true
			q.lockAt = now
		case failure.CodeOf(err) != failure.Unavailable:
			p.alone = true // one of them is refused; trying each alone finds out which
		case b.waitsForLock || stalled && len(b.queues) == 1:
			busy[q] = true
			q.lockAt = now.Add(max(q.pause, minBackoff))
		case stalled:
			p.most = len(b.queues) / 2 // one of them is stuck and must not block the others
		}
		again[q] = append(again[q], p)
	}
	switch {
	case err == nil:
		s.backoff, s.pausedUntil = 0, time.Time{}
	case failure.CodeOf(err) == failure.Unavailable && !b.waitsForLock && !stalled:
		s.backoff = min(max(2*s.backoff, minBackoff), maxBackoff)
		s.pausedUntil = now.Add(s.backoff)
	}
	for _, q := range b.queues {
		q.pending = append(again[q], q.pending...)
		if busy[q] {
			s.toBusy(q, now)
			continue
		}
		q.pause = 0
		s.toReady(q)
	}
}
