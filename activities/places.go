package activities

import (
	"slices"
	"sync"
)

// places bounds the turns that a worker runs concurrently. Attendants use places too, but give way
// to turns: if only a tenth of the places is free, the attendant that has waited longest leaves for
// each new turn.
type places struct {
	mu      sync.Mutex
	room    int // number of places for turns and attendants
	taken   int
	resting []*place // ordered by the start of the rest
}

// takeSpare is take for a turn that waits. It displaces no attendant: it returns nil if only the
// places that are kept for turns are free.
func (p *places) takeSpare() *place {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.taken >= p.room {
		return nil
	}
	p.taken++
	return &place{of: p, wanted: make(chan struct{})}
}

// place is one of them.
type place struct {
	of     *places
	wanted chan struct{} // closed when the attendant must leave
}

func newPlaces(turns int) *places { return &places{room: turns - max(1, turns/10)} }

// take is called when a turn begins.
func (p *places) take() *place {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.taken++
	if p.taken > p.room && len(p.resting) > 0 {
		close(p.resting[0].wanted)
		p.resting = p.resting[1:]
	}
	return &place{of: p, wanted: make(chan struct{})}
}

func (p *place) release() {
	p.of.mu.Lock()
	defer p.of.mu.Unlock()
	p.of.taken--
}

// spare reports whether there is room for an attendant.
func (p *place) spare() bool {
	p.of.mu.Lock()
	defer p.of.mu.Unlock()
	return p.of.taken <= p.of.room
}

// rest marks the place as one that turns may claim, until rise is called.
func (p *place) rest() {
	p.of.mu.Lock()
	defer p.of.mu.Unlock()
	if p.of.taken > p.of.room {
		close(p.wanted)
		return
	}
	p.of.resting = append(p.of.resting, p)
}

func (p *place) rise() {
	p.of.mu.Lock()
	defer p.of.mu.Unlock()
	p.of.resting = slices.DeleteFunc(p.of.resting, func(r *place) bool { return r == p })
	select {
	case <-p.wanted:
		p.wanted = make(chan struct{}) // the new turn is not an attendance
	default:
	}
}
