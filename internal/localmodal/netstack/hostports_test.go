package netstack_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/overwinter-dev/overwinter/internal/hostports"
	"github.com/overwinter-dev/overwinter/internal/localmodal/netdevice"
	"github.com/overwinter-dev/overwinter/internal/localmodal/netstack"
)

// hostPort is a port of this machine for which sandboxes have sockets.
type hostPort struct {
	config  netstack.Config
	number  uint16
	inside  string // its address in sandboxes
	outside string
}

// newHostPort reserves a port without a listener.
func newHostPort(t testing.TB) *hostPort {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, unix.Close(fd)) })
	// A bound port allows other sockets to listen on it if both sockets permit that.
	require.NoError(t, unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1))
	require.NoError(t, unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	bound, err := unix.Getsockname(fd)
	require.NoError(t, err)
	p := &hostPort{number: uint16(bound.(*unix.SockaddrInet4).Port)}
	p.inside, p.outside = fmt.Sprintf("%s:%d", netdevice.HostAddress, p.number), fmt.Sprintf("127.0.0.1:%d", p.number)
	p.config.HostPorts, err = hostports.Parse(strconv.Itoa(int(p.number)))
	require.NoError(t, err)
	p.config.Listeners, err = netstack.NewHostListeners()
	require.NoError(t, err)
	t.Cleanup(p.config.Listeners.Close)
	return p
}

// await waits until connections reach the port's socket, or no longer do.
func (p *hostPort) await(t testing.TB, s *sandbox, routed, listening bool) {
	t.Helper()
	require.Eventually(t, func() bool {
		r, l := s.network.Routed(p.number)
		return r == routed && l == listening
	}, waitLimit, poll)
}

func TestHostPortIsServedBySocketsOfKernel(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, kind netdevice.Kind) {
		for _, address := range []string{"127.0.0.1:0", "[::1]:0", "[::]:0"} {
			p := newHostPort(t)
			number := serve(t, address).(*net.TCPAddr).AddrPort().Port()
			p.number, p.inside = number, fmt.Sprintf("%s:%d", netdevice.HostAddress, number)
			var err error
			p.config.HostPorts, err = hostports.Parse(strconv.Itoa(int(number)))
			require.NoError(t, err)
			s := start(t, kind, p.config, "ask")
			routed, listening := s.network.Routed(number)
			require.True(t, routed && listening, "from the first connection on")
			require.Equal(t, "ok", s.ask(t, "keep", p.inside))
			direct, stacked := s.network.Direct(number)
			require.Equal(t, []int{1, 0}, []int{direct, stacked})
			require.Equal(t, "ok", s.ask(t, "use"))
			require.Equal(t, "ok", s.ask(t, "drop"))
			require.Eventually(t, func() bool { return s.network.Open() == 0 }, waitLimit, poll)

			require.Equal(t, "after you", inside(t, kind, p.config, "half", p.inside))
			for _, direction := range []string{"up", "down"} {
				rate, err := strconv.Atoi(inside(t, kind, p.config, direction, p.inside, strconv.Itoa(20<<20)))
				require.NoError(t, err)
				require.Positive(t, rate)
			}
			require.Equal(t, "done", inside(t, kind, p.config, "parallel", p.inside, "100"))
		}
	})
}

func TestClosedHostPortIsRefusedUntilServerListens(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, kind netdevice.Kind) {
		p := newHostPort(t)
		s := start(t, kind, p.config, "ask")
		for range 3 {
			require.Regexp(t, "connection refused$", s.ask(t, "try", p.inside))
			serve := serveUntil(t, p.outside)
			require.Equal(t, "ok", s.ask(t, "try", p.inside), "at once")
			p.await(t, s, true, true)
			require.Equal(t, "ok", s.ask(t, "keep", p.inside))
			direct, _ := s.network.Direct(p.number)
			require.Equal(t, 1, direct)

			// While its connection is open, the port stays with the kernel.
			serve.stop(t)
			p.await(t, s, true, false)
			require.Regexp(t, "connection refused$", s.ask(t, "try", p.inside))
			require.Equal(t, "ok", s.ask(t, "use"))
			serve = serveUntil(t, p.outside)
			p.await(t, s, true, true)
			require.Equal(t, "ok", s.ask(t, "try", p.inside))
			serve.stop(t)
			require.Equal(t, "ok", s.ask(t, "use"))
			require.Equal(t, "ok", s.ask(t, "drop"))
			p.await(t, s, false, false)
		}
		refused, _ := s.network.Refusals(0)
		require.Empty(t, refused, "listed destinations are not refused by the policy")
	})
}

func TestConnectionThroughStackKeepsItsPortThere(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, kind netdevice.Kind) {
		var p *hostPort
		var s *sandbox
		for stacked, tries := 0, 0; stacked == 0; tries++ { // the port may be checked before the connection
			require.Less(t, tries, 20)
			p = newHostPort(t)
			s = start(t, kind, p.config, "ask")
			serveUntil(t, p.outside)
			require.Equal(t, "ok", s.ask(t, "keep", p.inside))
			_, stacked = s.network.Direct(p.number)
		}
		require.Eventually(t, func() bool { l, err := p.config.Listeners.Listens(p.number); return l && err == nil }, waitLimit, poll)
		p.config.Listeners.LookNow()
		routed, _ := s.network.Routed(p.number)
		require.False(t, routed)
		require.Equal(t, "ok", s.ask(t, "try", p.inside))
		require.Equal(t, "ok", s.ask(t, "use"))
		require.Equal(t, "ok", s.ask(t, "drop"))
		p.await(t, s, true, true)
		require.Equal(t, "ok", s.ask(t, "try", p.inside))
	})
}

func TestSocketsOfHostPortsAreOutOfReach(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, kind netdevice.Kind) {
		p := newHostPort(t)
		serveUntil(t, p.outside)
		other := serve(t, "127.0.0.1:0").(*net.TCPAddr).AddrPort()
		s := start(t, kind, p.config, "ask")
		// A server in the sandbox may use the same port, but gets none of the connections.
		require.Equal(t, "ok", s.ask(t, "listen", fmt.Sprintf("0.0.0.0:%d", p.number)))
		require.Equal(t, "ok", s.ask(t, "try", p.inside))
		// Other addresses do not reach it, and refusals are reported.
		require.Regexp(t, "connection refused$", s.ask(t, "try", fmt.Sprintf("%s:%d", netdevice.HostAddress, other.Port())))
		refused, _ := s.network.Refusals(0)
		require.Len(t, refused, 1)
		require.Equal(t, netip.AddrPortFrom(netdevice.HostAddress, other.Port()), netip.AddrPortFrom(refused[0].IP, refused[0].Port))
	})
}

func TestResetOfConnectionToHostPortReachesOtherEnd(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, kind netdevice.Kind) {
		p := newHostPort(t)
		listener, err := net.Listen("tcp", p.outside)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, listener.Close()) })
		s := start(t, kind, p.config, "ask")
		accept := func() *net.TCPConn {
			result := make(chan net.Conn, 1)
			go func() {
				conn, _ := listener.Accept() // nil once the listener is closed
				if conn != nil {
					_, _ = io.ReadFull(conn, make([]byte, 9+5)) // the client reports missing bytes
					_, _ = conn.Write([]byte("hello"))
				}
				result <- conn
			}()
			require.Equal(t, "ok", s.ask(t, "keep", p.inside))
			return (<-result).(*net.TCPConn)
		}
		conn := accept()
		require.Equal(t, "ok", s.ask(t, "reset"))
		_, err = conn.Read(make([]byte, 1))
		require.ErrorIs(t, err, unix.ECONNRESET)
		require.NoError(t, conn.Close())

		conn = accept()
		require.NoError(t, conn.SetLinger(0))
		require.NoError(t, conn.Close())
		require.Regexp(t, "connection reset by peer$", s.ask(t, "read", "0"))
		require.Eventually(t, func() bool { return s.network.Open() == 0 }, waitLimit, poll)
	})
}

func TestHostPortWithSlowClientUsesNoCPU(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, kind netdevice.Kind) {
		p := newHostPort(t)
		listener, err := net.Listen("tcp", p.outside)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, listener.Close()) })
		s := start(t, kind, p.config, "ask")
		require.Equal(t, "ok", s.ask(t, "request", p.inside))
		conn, err := listener.Accept()
		require.NoError(t, err)
		_, err = io.ReadAll(conn) // otherwise closing it would send a reset
		require.NoError(t, err)
		sent := 0
		for stalled := int64(0); stalled == 0; _, stalled = s.network.Relay() {
			require.NoError(t, conn.SetWriteDeadline(time.Now().Add(poll)))
			n, err := conn.Write(make([]byte, 64<<10))
			if err != nil {
				require.ErrorIs(t, err, os.ErrDeadlineExceeded)
			}
			sent += n
		}
		// Now the sockets on this machine are closed in both directions, but not all bytes have
		// been relayed.
		require.NoError(t, conn.Close())
		go func() {
			for conn, err := listener.Accept(); err == nil; conn, err = listener.Accept() {
				answer(conn)
				_ = conn.Close()
			}
		}()
		before, _ := s.network.Relay()
		for range 20 {
			require.Equal(t, "ok", s.ask(t, "try", p.inside))
		}
		after, stalled := s.network.Relay()
		require.Less(t, after-before, int64(1000))
		require.EqualValues(t, 1, stalled)
		require.Equal(t, "ok", s.ask(t, "read", strconv.Itoa(sent)))
		require.Eventually(t, func() bool { return s.network.Open() == 0 }, waitLimit, poll)
		_, stalled = s.network.Relay()
		require.Zero(t, stalled)
	})
}

// A full backlog drops the first packet of the connection, which is retransmitted a second later.
func TestHostPortWaitsForSlowServer(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, kind netdevice.Kind) {
		p := newHostPort(t)
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		require.NoError(t, err)
		require.NoError(t, unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1))
		require.NoError(t, unix.Bind(fd, &unix.SockaddrInet4{Port: int(p.number), Addr: [4]byte{127, 0, 0, 1}}))
		require.NoError(t, unix.Listen(fd, 0))
		file := os.NewFile(uintptr(fd), "listener")
		listener, err := net.FileListener(file)
		require.NoError(t, errors.Join(err, file.Close()))
		t.Cleanup(func() { require.NoError(t, listener.Close()) })
		first, err := net.Dial("tcp", p.outside) // occupies the only place
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, first.Close()) })
		s := start(t, kind, p.config, "ask")
		s.begin(t, "try", p.inside)
		require.Eventually(t, func() bool { direct, _ := s.network.Direct(p.number); return direct == 1 }, waitLimit, poll)
		conn, err := listener.Accept()
		require.NoError(t, errors.Join(err, conn.Close()))
		conn, err = listener.Accept()
		require.NoError(t, err)
		answer(conn)
		require.NoError(t, conn.Close())
		require.Equal(t, "ok", s.answer(t))
	})
}

func TestConnectionsToHostPortsAreLimited(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, kind netdevice.Kind) {
		p := newHostPort(t)
		serveUntil(t, p.outside)
		s := start(t, kind, p.config, "greet", p.inside, strconv.Itoa(netstack.MaxConnections+20))
		require.Equal(t, strconv.Itoa(netstack.MaxConnections), s.wait(t))
		refused, _ := s.network.Refusals(0)
		require.NotEmpty(t, refused)
		require.Equal(t, netstack.Limited, refused[0].Verdict)
		require.Equal(t, p.number, refused[0].Port)
	})
}

func TestNetworksCloseWithConnectionsToHostPorts(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, kind netdevice.Kind) {
		p := newHostPort(t)
		serveUntil(t, p.outside)
		s := start(t, kind, p.config, "storm", p.inside)
		require.Eventually(t, func() bool { return s.network.Open() > 0 }, waitLimit, poll)
		s.network.Close()
		require.Zero(t, s.network.Open())
		require.NoError(t, s.cmd.Process.Kill())
		s.wait(t)
		require.Eventually(t, func() bool { return !p.config.Listeners.Running() }, waitLimit, poll, "without networks nothing is looked at")
	})
}

// The namespace of the sockets, which is otherwise invisible, removes the interface when it ends.
func TestHostSocketsEndWithTheirNetwork(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, kind netdevice.Kind) {
		p := newHostPort(t)
		serveUntil(t, p.outside)
		s := start(t, kind, p.config, "ask")
		require.Equal(t, "ok", s.ask(t, "keep", p.inside))
		require.Equal(t, "ok", s.ask(t, "interface", "host0"))
		s.network.Close()
		require.Regexp(t, "error: ", s.ask(t, "use"))
		require.Eventually(t, func() bool { return s.ask(t, "interface", "host0") != "ok" }, waitLimit, poll)
	})
}

func TestListeningSocketsAreFound(t *testing.T) {
	t.Parallel()
	l, err := netstack.NewHostListeners()
	require.NoError(t, err)
	t.Cleanup(l.Close)
	for _, address := range []string{"127.0.0.1:0", "0.0.0.0:0", "[::1]:0", "[::]:0"} {
		network := "tcp"
		if strings.HasPrefix(address, "0") {
			network = "tcp4"
		}
		// Another program may bind a closed port.
		gone := false
		for try := 0; try < 10 && !gone; try++ {
			listener, err := net.Listen(network, address)
			require.NoError(t, err)
			port := netip.MustParseAddrPort(listener.Addr().String()).Port()
			listens, err := l.Listens(port)
			require.NoError(t, err)
			require.True(t, listens, address)
			require.NoError(t, listener.Close())
			listens, err = l.Listens(port)
			require.NoError(t, err)
			gone = !listens
		}
		require.True(t, gone, address)
	}
}

func TestStackServesHostPortsIfSocketsFail(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, kind netdevice.Kind) {
		p := newHostPort(t)
		s := start(t, kind, p.config, "ask")
		s.network.BreakRoutes()
		server := serveUntil(t, p.outside)
		p.config.Listeners.LookNow()
		routed, listening := s.network.Routed(p.number)
		require.False(t, routed || listening)
		require.Equal(t, "ok", s.ask(t, "keep", p.inside))
		_, stacked := s.network.Direct(p.number)
		require.Equal(t, 1, stacked)
		server.stop(t)
		// A process that another test has just forked also has the listening socket until it
		// executes its program.
		require.Eventually(t, func() bool { return strings.HasSuffix(s.ask(t, "try", p.inside), "connection refused") }, waitLimit, poll)
	})
}
