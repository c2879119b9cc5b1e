package netstack

import (
	"net/netip"
	"slices"
	"sync"
	"time"
)

// Protocol is a transport protocol.
type Protocol string

// The protocols.
const (
	TCP Protocol = "tcp"
	UDP Protocol = "udp"
)

// Verdict is the reason why a connection or packet was not forwarded.
type Verdict string

// The verdicts.
const (
	Refused Verdict = "refused" // the policy does not allow the destination
	Limited Verdict = "limited" // the sandbox has too many connections
)

// Refusal counts the connections and packets to one destination that were not forwarded within a
// minute.
type Refusal struct {
	No       int64     // ascending
	Time     time.Time // time of the first one
	Host     string    // name of the address according to DNS; may be empty
	IP       netip.Addr
	Port     uint16
	Protocol Protocol
	Verdict  Verdict
	Count    int
}

const (
	// refusalWindow is the minimum time between two Refusals of one destination.
	refusalWindow = time.Minute
	// maxKeptRefusals bounds the refusals that have not been read yet.
	maxKeptRefusals = 1000
)

type destination struct {
	ip       netip.Addr
	port     uint16
	protocol Protocol
	verdict  Verdict
}

// refusals collects Refusals. The first one of a destination is visible immediately; later ones
// within the window are combined and visible when the window has passed.
type refusals struct {
	now func() time.Time

	mu      sync.Mutex
	last    int64
	checked time.Time // last check for windows that have passed
	shown   []Refusal
	windows map[destination]*window
}

type window struct {
	began   time.Time
	pending Refusal // none if Count is 0
}

// add counts a refusal.
func (r *refusals) add(d destination, host string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	if now.Sub(r.checked) > time.Second {
		r.advance(now)
	}
	w := r.windows[d]
	if w == nil && len(r.windows) >= maxRefusals {
		d = destination{protocol: d.protocol, verdict: d.verdict} // one destination for all further ones
		host = ""
		w = r.windows[d]
	}
	one := Refusal{Time: now, Host: host, IP: d.ip, Port: d.port, Protocol: d.protocol, Verdict: d.verdict, Count: 1}
	switch {
	case w == nil:
		if r.windows == nil {
			r.windows = map[destination]*window{}
		}
		r.windows[d] = &window{began: now}
		r.show(one)
	case w.pending.Count == 0:
		w.pending = one
	default:
		w.pending.Count++
	}
}

// advance publishes the refusals of windows that have passed.
func (r *refusals) advance(now time.Time) {
	r.checked = now
	for d, w := range r.windows {
		if now.Sub(w.began) < refusalWindow {
			continue
		}
		if w.pending.Count == 0 {
			delete(r.windows, d)
			continue
		}
		r.show(w.pending)
		*w = window{began: now}
	}
}

func (r *refusals) show(one Refusal) {
	r.last++
	one.No = r.last
	if r.shown = append(r.shown, one); len(r.shown) > maxKeptRefusals {
		r.shown = slices.Delete(r.shown, 0, len(r.shown)-maxKeptRefusals)
	}
}

// after returns the refusals with higher numbers, oldest first, and the last number.
func (r *refusals) after(no int64) ([]Refusal, int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.advance(r.now())
	i, _ := slices.BinarySearchFunc(r.shown, no+1, func(one Refusal, no int64) int { return int(one.No - no) })
	return slices.Clone(r.shown[i:]), r.last
}

// Refusals returns the refusals after the one with that number, oldest first, and the number to
// continue from. At most the last 1000 are kept.
func (n *Network) Refusals(after int64) ([]Refusal, int64) { return n.refused.after(after) }

func (n *Network) refuse(to netip.AddrPort, protocol Protocol, verdict Verdict) {
	n.refused.add(destination{ip: to.Addr().Unmap(), port: to.Port(), protocol: protocol, verdict: verdict}, n.names.of(to.Addr()))
}
