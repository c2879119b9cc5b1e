package turn

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/overwinter-dev/overwinter/internal/runner"
)

const (
	// paceFrames is the approximate number of printed but unhandled frames of all turns of a worker
	// together. Under overload, agents and runners use most of the CPU time of a frame, so
	// paceFrames also determines how long it takes until every agent has printed a window, and by
	// how much a turn that begins late has printed less than the others.
	paceFrames = 12 << 10
	// minWindow and maxWindow bound the window of one turn. A turn begins with minWindow, which
	// doubles each time that half of it is handled. If many turns begin at once, none of them
	// prints much before the others have begun.
	minWindow = 64
	maxWindow = 8 << 10
	// paceMemory is the time after which the frames of a turn count half.
	paceMemory = 5 * time.Second
)

// paces are the turns of a worker whose agents are paced. On a machine that is too slow for its
// agents, each agent waits for its window most of the time, so its speed depends on the size of the
// window. Turns that have printed more than others in the last seconds get smaller windows, and
// turns that began late get larger ones.
type paces struct {
	linked atomic.Int64 // turns that have a link or open one

	mu     sync.Mutex
	recent map[*pacer]int64 // handled frames, halved every paceMemory
	halved time.Time
}

// join adds a turn.
func (s *paces) join(p *pacer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.recent == nil {
		s.recent = map[*pacer]int64{}
	}
	s.recent[p] = 0
}

// leave removes a turn.
func (s *paces) leave(p *pacer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.recent, p)
}

// next returns the next window of a turn, given the number of frames handled since its last window.
func (s *paces) next(p *pacer, frames int64, now time.Time) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.decay(now)
	s.recent[p] += frames
	// The mean is weighted by the frames themselves, so that turns that print slowly do not lower
	// it.
	var sum, squares float64
	for _, n := range s.recent {
		sum, squares = sum+float64(n), squares+float64(n)*float64(n)
	}
	ahead := 0.0
	if squares > 0 {
		ahead = float64(s.recent[p]) * sum / squares
	}
	return nextWindow(p.window.Load(), s.linked.Load(), ahead)
}

// decay halves recent for each paceMemory that has passed.
func (s *paces) decay(now time.Time) {
	periods := int64(now.Sub(s.halved) / paceMemory)
	if periods <= 0 {
		return
	}
	s.halved = now
	for p, n := range s.recent {
		s.recent[p] = n >> min(periods, 62)
	}
}

// nextWindow returns how many frames of a turn may wait after some were handled. turns is the
// number of turns with links, and ahead compares the frames of this turn with those of the other
// turns in the last seconds. The window is between half and twice the share of one turn.
func nextWindow(window, turns int64, ahead float64) int64 {
	share := float64(max(paceFrames/max(turns, 1), minWindow))
	fair := share / min(max(ahead, 0.5), 2)
	return min(2*window, max(int64(fair), minWindow), maxWindow)
}

// pacer makes a runner pause an agent that prints faster than the worker handles frames.
//
// A window may shrink while a Taken message is in transit. The frames that were handled in the
// meantime may then be the last ones that the agent prints before it waits. To avoid a lost
// notification, took stores the handled frame before it compares, and send stores the sent frame
// before it compares, so that at least one of them sees the other's value.
type pacer struct {
	link    *runner.Link
	paces   *paces
	base    int64         // offset of the link's frames within the run
	handled atomic.Int64  // the newest handled frame
	sent    atomic.Int64  // the newest handled frame that was reported to the runner
	window  atomic.Int64  // the window last sent to the runner
	due     chan struct{} // half of the window is handled and not yet reported
	done    chan struct{}
}

// newPacer returns a pacer for a link that begins after the given frame.
func newPacer(link *runner.Link, paces *paces, base, frame int64) *pacer {
	p := &pacer{link: link, paces: paces, base: base, due: make(chan struct{}, 1), done: make(chan struct{})}
	p.handled.Store(frame)
	p.sent.Store(frame)
	p.window.Store(minWindow)
	return p
}

// took records that the frames up to the given one are handled. It does not wait for the runner,
// which is notified once half of its window is handled.
func (p *pacer) took(frame int64) {
	p.handled.Store(frame)
	if !p.half() {
		return
	}
	select {
	case p.due <- struct{}{}:
	default: // send has not handled the previous signal yet, and will read this frame
	}
}

// half reports whether half of the window is handled and not yet reported.
func (p *pacer) half() bool { return p.handled.Load()-p.sent.Load() >= p.window.Load()/2 }

// send notifies the runner of handled frames until ctx ends or the link is closed.
func (p *pacer) send(ctx context.Context) {
	defer close(p.done)
	p.paces.join(p)
	defer p.paces.leave(p)
	for {
		select {
		case <-p.due:
		case <-ctx.Done():
			return
		}
		for p.half() {
			handled := p.handled.Load()
			window := p.paces.next(p, handled-p.sent.Load(), time.Now())
			if p.link.Taken(handled+1-p.base, window) != nil {
				return // the link has ended; its reader reports the error
			}
			p.sent.Store(handled)
			p.window.Store(window)
		}
	}
}
