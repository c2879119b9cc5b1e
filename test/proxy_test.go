package test

import (
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/porttest"
)

// proxy relays TCP connections from a loopback port to a server, and can stop doing so in the ways a
// network and a server do: refuse connections, reset them, deliver nothing, or deliver late.
type proxy struct {
	address string
	dial    func() (net.Conn, error)

	mu       sync.Mutex
	listener net.Listener // nil while refusing
	pairs    map[*pair]struct{}
	open     chan struct{} // closed while bytes may pass
	delay    time.Duration
	closed   bool
	running  sync.WaitGroup

	// broken is locked while the proxy refuses or stalls, because a storm may draw either twice at
	// the same time.
	broken sync.Mutex
}

// pair is one relayed connection.
type pair struct{ client, server net.Conn }

// reset closes both sides with a reset.
func (p *pair) reset() {
	for _, c := range []net.Conn{p.client, p.server} {
		if tcp, ok := c.(*net.TCPConn); ok {
			tcp.SetLinger(0) //nolint:errcheck // it is being closed
		}
		c.Close()
	}
}

func newProxy(t *testing.T, dial func() (net.Conn, error)) *proxy {
	t.Helper()
	p := &proxy{
		address: fmt.Sprintf("127.0.0.1:%d", porttest.Free(t)), dial: dial,
		pairs: map[*pair]struct{}{}, open: make(chan struct{}),
	}
	close(p.open)
	p.accept(t)
	t.Cleanup(p.close)
	return p
}

// accept starts listening.
func (p *proxy) accept(t *testing.T) {
	t.Helper()
	var l net.Listener
	eventually(t, within, "the proxy can listen on "+p.address, func() (err error) {
		l, err = net.Listen("tcp", p.address)
		return err
	})
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed { // the test has ended
		l.Close()
		return
	}
	p.listener = l
	p.running.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			p.running.Go(func() { p.relay(client) })
		}
	})
}

func (p *proxy) relay(client net.Conn) {
	server, err := p.dial()
	if err != nil {
		(&pair{client, client}).reset()
		return
	}
	link := &pair{client, server}
	p.mu.Lock()
	if p.closed || p.listener == nil {
		p.mu.Unlock()
		link.reset()
		return
	}
	p.pairs[link] = struct{}{}
	p.mu.Unlock()
	var both sync.WaitGroup
	both.Go(func() { p.copy(server, client) })
	both.Go(func() { p.copy(client, server) })
	both.Wait()
	p.mu.Lock()
	delete(p.pairs, link)
	p.mu.Unlock()
}

// copy relays one direction until either side closes.
func (p *proxy) copy(to, from net.Conn) {
	defer to.Close()
	defer from.Close()
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		p.pass()
		if _, failed := to.Write(buffer[:n]); failed != nil || err != nil {
			return
		}
	}
}

// pass returns when bytes may continue.
func (p *proxy) pass() {
	p.mu.Lock()
	open, delay := p.open, p.delay
	p.mu.Unlock()
	if delay > 0 {
		<-time.After(delay)
	}
	<-open
}

// refuse closes the port and resets every connection for d.
func (p *proxy) refuse(t *testing.T, d time.Duration) {
	t.Helper()
	p.broken.Lock()
	defer p.broken.Unlock()
	p.mu.Lock()
	l := p.listener
	p.listener = nil
	l.Close()
	p.resetLocked()
	p.mu.Unlock()
	<-time.After(d)
	p.accept(t)
}

// reset breaks every connection once, and returns how many there were; new ones are accepted.
func (p *proxy) reset() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.resetLocked()
}

func (p *proxy) resetLocked() int {
	for link := range p.pairs {
		link.reset()
	}
	return len(p.pairs)
}

// stall delivers nothing for d in either direction, and breaks no connection.
func (p *proxy) stall(d time.Duration) {
	p.broken.Lock()
	defer p.broken.Unlock()
	p.mu.Lock()
	p.open = make(chan struct{})
	p.mu.Unlock()
	<-time.After(d)
	p.mu.Lock()
	close(p.open)
	p.mu.Unlock()
}

// slow delays everything for d.
func (p *proxy) slow(by, d time.Duration) {
	p.setDelay(by)
	<-time.After(d)
	p.setDelay(0)
}

func (p *proxy) setDelay(by time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = by
}

func (p *proxy) close() {
	p.mu.Lock()
	p.closed = true
	if p.listener != nil {
		p.listener.Close()
	}
	p.resetLocked()
	p.mu.Unlock()
	p.running.Wait()
}

// TestProxyFailsAsAsked checks the faults of the proxy that the scenarios rely on.
func TestProxyFailsAsAsked(t *testing.T) {
	t.Parallel()
	echo, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer echo.Close()
	go func() {
		for {
			c, err := echo.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				io.Copy(c, c) //nolint:errcheck // until the client closes
			}()
		}
	}()
	p := newProxy(t, func() (net.Conn, error) { return net.Dial("tcp", echo.Addr().String()) })
	c, err := net.Dial("tcp", p.address)
	require.NoError(t, err)
	defer c.Close()
	say := func(c net.Conn) error {
		if _, err := c.Write([]byte("hello")); err != nil {
			return err
		}
		_, err := io.ReadFull(c, make([]byte, 5))
		return err
	}
	require.NoError(t, say(c))

	done := make(chan struct{})
	began := time.Now()
	go func() { p.stall(2 * time.Second); close(done) }()
	eventually(t, within, "the proxy stalls", func() error {
		p.mu.Lock()
		defer p.mu.Unlock()
		select {
		case <-p.open:
			return fmt.Errorf("it passes bytes")
		default:
			return nil
		}
	})
	require.NoError(t, say(c), "the connection survives")
	<-done
	require.GreaterOrEqual(t, time.Since(began), 2*time.Second)

	done = make(chan struct{})
	go func() { p.refuse(t, 300*time.Millisecond); close(done) }()
	require.Error(t, say(c), "the connection is reset")
	refused := 0
	for ended := false; !ended; {
		select {
		case <-done:
			ended = true
		default:
			c, err := net.Dial("tcp", p.address)
			if err != nil {
				refused++
			} else {
				c.Close()
			}
		}
	}
	require.Positive(t, refused)
	c, err = net.Dial("tcp", p.address)
	require.NoError(t, err)
	defer c.Close()
	require.NoError(t, say(c), "it works again")

	p.reset()
	require.Error(t, say(c), "the connection is reset once")
	c, err = net.Dial("tcp", p.address)
	require.NoError(t, err)
	defer c.Close()
	began = time.Now()
	done = make(chan struct{})
	go func() { p.slow(200*time.Millisecond, 3*time.Second); close(done) }()
	eventually(t, within, "bytes are late", func() error {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.delay == 0 {
			return fmt.Errorf("they are not")
		}
		return nil
	})
	require.NoError(t, say(c))
	require.GreaterOrEqual(t, time.Since(began), 400*time.Millisecond, "there and back")
	<-done
}

// TestProxyAcceptsTwoFaults checks that concurrent faults run one after the other, and that
// everything passes after the second.
func TestProxyAcceptsTwoFaults(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]func(t *testing.T, p *proxy){
		"refused": func(t *testing.T, p *proxy) { p.refuse(t, 50*time.Millisecond) },
		"stalled": func(_ *testing.T, p *proxy) { p.stall(50 * time.Millisecond) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newProxy(t, func() (net.Conn, error) {
				ours, theirs := net.Pipe()
				go func() { theirs.Write([]byte("hello")); theirs.Close() }() //nolint:errcheck // the reader sees it
				return ours, nil
			})
			var both sync.WaitGroup
			for range 2 {
				both.Go(func() { fault(t, p) })
			}
			both.Wait()
			conn, err := net.Dial("tcp", p.address)
			require.NoError(t, err)
			defer conn.Close()
			got, err := io.ReadAll(conn)
			require.NoError(t, err)
			require.Equal(t, "hello", string(got))
		})
	}
}
