package netstack

import (
	"errors"
	"net/netip"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// relayBurst bounds the chunks of a connection that are copied before other connections get
	// their turn.
	relayBurst = 8
	// acceptPause is how long accepting pauses after the process has run out of descriptors or
	// memory.
	acceptPause = 10 * time.Millisecond
)

// relayLoop accepts connections to the host ports of a network, connects them to the ports of this
// machine and copies data in both directions. It is one goroutine with its own epoll instance. With
// the sockets of package net and two goroutines for each connection, a request over a new
// connection takes 0.15 ms longer: the goroutines start, park and wake up several times, and the
// runtime wakes up threads for them. The loop only blocks when it waits for events.
type relayLoop struct {
	ports   *hostPorts
	epoll   int
	wake    int // an eventfd, which ends the loop
	ends    map[int]*relayEnd
	chunk   *[]byte     // read buffer
	dialing int         // number of connections that are being dialed
	paused  []*hostPort // ports that do not accept until resume
	resume  time.Time
	closed  []int     // descriptors to close after all events of a round, so that their numbers are not reused before
	now     time.Time // time of the events of a round
	check   time.Time // next check for idle connections

	// For tests: how often events were handled, and how many ends have pending bytes.
	rounds, stalled atomic.Int64
}

// relayed is a connection of the sandbox and the one to this machine.
type relayed struct {
	port            *hostPort
	inside, outside relayEnd
	next            []netip.AddrPort // addresses to dial if the current one refuses
	address         unix.Sockaddr    // address to which outside is connected or connecting
	connected       bool
	used            time.Time
}

// relayEnd is one of the two sockets.
type relayEnd struct {
	conn    *relayed
	other   *relayEnd
	fd      int
	events  uint32  // events for which the loop waits
	ended   bool    // the peer has closed its direction
	pending []byte  // data to write; meanwhile the other end is not read
	chunk   *[]byte // contains pending
}

func newRelayLoop(h *hostPorts) (*relayLoop, error) {
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, err
	}
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, errors.Join(err, unix.Close(epoll))
	}
	l := &relayLoop{ports: h, epoll: epoll, wake: wake, ends: map[int]*relayEnd{}, chunk: takeChunk()}
	if err := l.wait(unix.EPOLL_CTL_ADD, wake, unix.EPOLLIN); err != nil {
		return nil, errors.Join(err, unix.Close(epoll), unix.Close(wake))
	}
	return l, nil
}

// wait changes the events for which the loop waits. Other goroutines may call it until stop.
func (l *relayLoop) wait(operation, fd int, events uint32) error {
	return unix.EpollCtl(l.epoll, operation, fd, &unix.EpollEvent{Events: events, Fd: int32(fd)})
}

// stop makes run return.
func (l *relayLoop) stop() { _, _ = unix.Write(l.wake, []byte{1, 0, 0, 0, 0, 0, 0, 0}) } // cannot fail: it is written once

// run serves connections until stop, and then resets the open ones.
func (l *relayLoop) run() {
	events := make([]unix.EpollEvent, 64)
	for stopped := false; !stopped; {
		n, err := unix.EpollWait(l.epoll, events, l.timeout())
		if err != nil {
			n = 0 // interrupted by a signal
		}
		l.now = time.Now()
		l.rounds.Add(1)
		for _, event := range events[:n] {
			fd := int(event.Fd)
			if e := l.ends[fd]; e != nil {
				l.serve(e)
			} else if p := l.ports.withSocket(fd); p != nil {
				l.accept(p)
			} else {
				stopped = stopped || fd == l.wake
			}
		}
		l.tidy()
	}
	for _, e := range l.ends {
		l.abort(e.conn)
	}
	l.tidy()
	chunks.Put(l.chunk)
	_, _ = unix.Close(l.wake), unix.Close(l.epoll) // nothing was written
}

// timeout returns how long to wait for events, in milliseconds.
func (l *relayLoop) timeout() int {
	switch {
	case len(l.paused) > 0:
		return int(acceptPause.Milliseconds())
	case l.dialing > 0:
		return 1000
	case len(l.ends) > 0:
		return 60_000
	default:
		return -1
	}
}

// tidy ends a round.
func (l *relayLoop) tidy() {
	if len(l.paused) > 0 && !l.now.Before(l.resume) {
		for _, p := range l.paused {
			p.mu.Lock()
			if p.listening {
				_ = l.wait(unix.EPOLL_CTL_MOD, p.fd, unix.EPOLLIN) // cannot fail: it was added when the port began to listen
			}
			p.mu.Unlock()
		}
		l.paused = nil
	}
	if len(l.ends) > 0 && l.now.After(l.check) {
		l.check = l.now.Add(time.Second)
		for _, e := range l.ends {
			limit := tcpIdle
			if !e.conn.connected {
				limit = dialTimeout
			}
			if l.now.Sub(e.conn.used) > limit {
				l.abort(e.conn)
			}
		}
	}
	for _, fd := range l.closed {
		_ = unix.Close(fd) // the error cannot be handled
	}
	l.closed = l.closed[:0]
}

// accept accepts one connection.
func (l *relayLoop) accept(p *hostPort) {
	fd, err := p.accept()
	if err != nil { // out of descriptors or memory, or the port has just stopped listening
		_ = l.wait(unix.EPOLL_CTL_MOD, p.fd, 0)
		l.paused, l.resume = append(l.paused, p), l.now.Add(acceptPause)
		return
	}
	n, to := l.ports.network, hostAddress(p.number)
	if !n.beginConnection() {
		n.refuse(to, TCP, Limited)
		l.closed = append(l.closed, fd)
		resetOnClose(fd)
		p.release()
		return
	}
	c := &relayed{port: p, used: l.now, next: n.destination(to)}
	c.inside, c.outside = relayEnd{conn: c, other: &c.outside, fd: fd}, relayEnd{conn: c, other: &c.inside, fd: -1}
	if len(c.next) == 0 {
		n.refuse(to, TCP, Refused)
		l.abort(c)
		return
	}
	l.dial(c)
}

// dial connects to the next of the addresses.
func (l *relayLoop) dial(c *relayed) {
	for len(c.next) > 0 {
		to := c.next[0]
		c.next = c.next[1:]
		family := unix.AF_INET6
		c.address = &unix.SockaddrInet6{Port: int(to.Port()), Addr: to.Addr().As16()}
		if to.Addr().Is4() {
			family = unix.AF_INET
			c.address = &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()}
		}
		fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			continue
		}
		_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1) // without it, small writes are delayed
		c.outside.fd = fd
		l.ends[fd] = &c.outside
		l.dialing++
		_ = unix.Connect(fd, c.address) // only starts the connect
		if l.dialed(c) {
			return
		}
	}
	l.abort(c)
	l.ports.network.config.Listeners.lookNow()
}

// dialed continues a dial. It returns false if the address refuses. On the loopback interface the
// result is known as soon as the dial has begun.
func (l *relayLoop) dialed(c *relayed) bool {
	err := unix.Connect(c.outside.fd, c.address) // returns the result of the first call
	if errors.Is(err, unix.EALREADY) {
		err = l.await(&c.outside, unix.EPOLLOUT)
		if err == nil {
			return true
		}
	}
	l.dialing--
	if err != nil {
		l.drop(&c.outside)
		return false
	}
	c.connected = true
	l.ends[c.inside.fd] = &c.inside
	l.serve(&c.inside) // its first bytes have often arrived already
	return true
}

// serve performs the operations that the state of a socket allows.
func (l *relayLoop) serve(e *relayEnd) {
	c := e.conn
	if !c.connected {
		if !l.dialed(c) {
			l.dial(c)
		}
		return
	}
	c.used = l.now
	err := l.flush(e)
	if err == nil {
		err = l.forward(e)
	}
	if err == nil && c.inside.ended && c.outside.ended {
		l.release(c)
		return
	}
	if err == nil {
		err = errors.Join(l.await(&c.inside, c.inside.awaited()), l.await(&c.outside, c.outside.awaited()))
	}
	if err != nil {
		l.abort(c)
	}
}

// forward copies available data from one end to the other, and then its end of file.
func (l *relayLoop) forward(from *relayEnd) error {
	to := from.other
	for range relayBurst {
		if from.ended || len(to.pending) > 0 {
			return nil
		}
		size, err := unix.Read(from.fd, *l.chunk)
		switch {
		case errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR):
			return nil
		case err != nil:
			return err
		case size == 0:
			from.ended = true
			_ = unix.Shutdown(to.fd, unix.SHUT_WR) // fails if the connection has been reset, which its next event reports
			return nil
		}
		sent, err := write(to.fd, (*l.chunk)[:size])
		if err != nil {
			return err
		}
		if sent < size {
			to.chunk, to.pending, l.chunk = l.chunk, (*l.chunk)[sent:size], takeChunk()
			l.stalled.Add(1)
		}
		if size < len(*l.chunk) {
			return nil
		}
	}
	return nil
}

// flush writes pending data.
func (l *relayLoop) flush(e *relayEnd) error {
	if len(e.pending) == 0 {
		return nil
	}
	sent, err := write(e.fd, e.pending)
	if e.pending = e.pending[sent:]; len(e.pending) == 0 {
		l.clear(e)
	}
	return err
}

// write returns how many bytes a socket has accepted, possibly none.
func write(fd int, b []byte) (int, error) {
	sent, err := unix.Write(fd, b)
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) {
		err = nil
	}
	return max(sent, 0), err
}

// clear discards pending data.
func (l *relayLoop) clear(e *relayEnd) {
	chunks.Put(e.chunk)
	e.chunk, e.pending = nil, nil
	l.stalled.Add(-1)
}

// awaited returns the events for which the loop must wait at an end.
func (e *relayEnd) awaited() (events uint32) {
	if !e.ended && len(e.other.pending) == 0 {
		events |= unix.EPOLLIN
	}
	if len(e.pending) > 0 {
		events |= unix.EPOLLOUT
	}
	return events
}

// await waits for events of an end. The kernel always reports errors, so the loop does not wait at
// all for an end without events.
func (l *relayLoop) await(e *relayEnd, events uint32) error {
	operation := unix.EPOLL_CTL_MOD
	switch {
	case events == e.events:
		return nil
	case e.events == 0:
		operation = unix.EPOLL_CTL_ADD
	case events == 0:
		operation = unix.EPOLL_CTL_DEL
	}
	e.events = events
	return l.wait(operation, e.fd, events)
}

// abort ends a connection with a failure at both ends.
func (l *relayLoop) abort(c *relayed) {
	resetOnClose(c.inside.fd)
	if c.connected {
		resetOnClose(c.outside.fd)
	} else if c.outside.fd >= 0 {
		l.dialing--
	}
	l.release(c)
}

// release ends a connection.
func (l *relayLoop) release(c *relayed) {
	l.drop(&c.inside)
	l.drop(&c.outside)
	c.port.release()
	l.ports.network.endConnection()
}

func (l *relayLoop) drop(e *relayEnd) {
	if e.fd < 0 {
		return
	}
	_ = l.await(e, 0) // closing does not do that while a newly forked process also has the socket
	delete(l.ends, e.fd)
	l.closed = append(l.closed, e.fd)
	if e.chunk != nil {
		l.clear(e)
	}
	e.fd = -1
}

// resetOnClose makes a socket's close abort its connection.
func resetOnClose(fd int) {
	_ = unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
}
