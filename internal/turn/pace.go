package turn

import (
	"context"
	"sync/atomic"

	"github.com/overwinter-dev/overwinter/internal/runner"
)

const (
	// paceFrames bounds the printed and unhandled frames of all turns of a worker together.
	paceFrames = 32 << 10
	// minWindow and maxWindow bound the share of one turn. A turn begins with minWindow, which
	// doubles each time that half of it is handled. So of many turns that begin at once, none
	// prints much before the others have begun.
	minWindow = 256
	maxWindow = 8 << 10
)

// nextWindow returns how many frames of a turn may wait after some were handled, given the number
// of turns with links. All end up with the same share, so that on a machine that is too slow for
// its agents all are equally fast.
func nextWindow(window, turns int64) int64 {
	return min(2*window, max(paceFrames/max(turns, 1), minWindow), maxWindow)
}

// pacer makes a runner pause an agent that prints more than the worker handles.
//
// A window may shrink while taken is on its way, and then the frames that were handled meanwhile may be all that the agent prints before it waits.
// So took stores what is handled before it compares, and send stores what it sent before it does: one of them sees the other.
type pacer struct {
	link    *runner.Link
	turns   *atomic.Int64 // of the worker that have links
	base    int64         // of the frames of the link in the run
	handled atomic.Int64  // the newest handled frame
	sent    atomic.Int64  // the newest handled frame that the runner was notified of
	window  atomic.Int64  // that the runner was given last
	due     chan struct{} // half of the window is handled and not sent
	done    chan struct{}
}

// newPacer returns a pacer of a link that begins after a frame.
func newPacer(link *runner.Link, turns *atomic.Int64, base, frame int64) *pacer {
	p := &pacer{link: link, turns: turns, base: base, due: make(chan struct{}, 1), done: make(chan struct{})}
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
	default: // send has not begun with the one before, and will read this frame
	}
}

// half reports whether half of the window is handled and not sent.
func (p *pacer) half() bool { return p.handled.Load()-p.sent.Load() >= p.window.Load()/2 }

// send notifies the runner of handled frames until ctx ends or the link is closed.
func (p *pacer) send(ctx context.Context) {
	defer close(p.done)
	for {
		select {
		case <-p.due:
		case <-ctx.Done():
			return
		}
		for p.half() {
			handled, window := p.handled.Load(), nextWindow(p.window.Load(), p.turns.Load())
			if p.link.Taken(handled+1-p.base, window) != nil {
				return // the link has ended, which its reader finds
			}
			p.sent.Store(handled)
			p.window.Store(window)
		}
	}
}
