package peeruser

import (
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// stranger is a user who runs nothing else on this machine.
const stranger = 61234

// TestMain is also the program that a stranger runs: it connects to the address in the environment. It keeps
// the connection until stdin ends, or closes it at once after sending a line.
func TestMain(m *testing.M) {
	address := os.Getenv("PEERUSER_DIAL")
	if address == "" {
		os.Exit(m.Run())
	}
	conn, err := net.Dial(os.Getenv("PEERUSER_NETWORK"), address)
	if err != nil {
		panic(err)
	}
	if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\n\r\n"); err != nil {
		panic(err)
	}
	if os.Getenv("PEERUSER_CLOSE") == "" {
		_, _ = io.Copy(io.Discard, os.Stdin) // its end is the signal
	}
}

// dial returns the accepted end of a connection that a process of a user makes.
func dial(t *testing.T, listener net.Listener, network, address string, id int, closed bool) net.Conn {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe")
	cmd.Env = []string{"PEERUSER_DIAL=" + address, "PEERUSER_NETWORK=" + network}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(id), Gid: uint32(id)}}
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	if closed {
		cmd.Env = append(cmd.Env, "PEERUSER_CLOSE=1")
	}
	require.NoError(t, cmd.Start())
	conn, err := listener.Accept()
	require.NoError(t, err)
	if closed {
		require.NoError(t, cmd.Wait())
	}
	t.Cleanup(func() {
		_ = conn.Close() // nothing is lost
		_ = stdin.Close()
		_ = cmd.Wait() // it has ended, or been waited for
	})
	return conn
}

func asRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root runs programs of other users")
	}
}

func TestConnectionsOfOtherUsersAreRefused(t *testing.T) {
	t.Parallel()
	asRoot(t)
	for name, c := range map[string]struct{ listen, network, host string }{
		"IPv4":           {"127.0.0.1:0", "tcp4", "127.0.0.1"},
		"IPv6":           {"[::1]:0", "tcp6", "::1"},
		"IPv4 over IPv6": {"127.0.0.1:0", "tcp", "::ffff:127.0.0.1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			listener, err := net.Listen("tcp", c.listen)
			if err != nil && c.network == "tcp6" {
				t.Skip("this machine has no IPv6")
			}
			require.NoError(t, err)
			defer listener.Close()
			_, port, err := net.SplitHostPort(listener.Addr().String())
			require.NoError(t, err)
			conn := dial(t, listener, c.network, net.JoinHostPort(c.host, port), stranger, false)

			own, err := Parse("")
			require.NoError(t, err)
			foreign := new(ForeignError)
			require.ErrorAs(t, own.Check(conn.LocalAddr(), conn.RemoteAddr()), &foreign)
			require.Equal(t, stranger, foreign.ID)

			for _, list := range []string{"daemon, " + strconv.Itoa(stranger), "all"} {
				admitted, err := Parse(list)
				require.NoError(t, err)
				require.NoError(t, admitted.Check(conn.LocalAddr(), conn.RemoteAddr()), list)
			}
			mine := dial(t, listener, c.network, net.JoinHostPort(c.host, port), os.Geteuid(), false)
			require.NoError(t, own.Check(mine.LocalAddr(), mine.RemoteAddr()))
		})
	}
}

// The kernel shows the closed sockets of every user as root's.
func TestClosedConnectionIsNotAttributedToRoot(t *testing.T) {
	t.Parallel()
	asRoot(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	own, err := Parse("")
	require.NoError(t, err)
	for range 5 {
		conn := dial(t, listener, "tcp", listener.Addr().String(), stranger, true)
		require.ErrorIs(t, own.Check(conn.LocalAddr(), conn.RemoteAddr()), errGone)
	}
}

func TestProcTablesAgree(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	conn, err := net.Dial("tcp", listener.Addr().String())
	require.NoError(t, err)
	here, err := addrPort(conn.LocalAddr())
	require.NoError(t, err)
	there, err := addrPort(conn.RemoteAddr())
	require.NoError(t, err)

	for name, find := range map[string]func(local, remote netip.AddrPort) (int, error){"sock_diag": diagnose, "/proc": readTable} {
		id, err := find(here, there)
		require.NoError(t, err, name)
		require.Equal(t, os.Geteuid(), id, name)
	}
	require.NoError(t, conn.Close())
	for name, find := range map[string]func(local, remote netip.AddrPort) (int, error){"sock_diag": diagnose, "/proc": readTable} {
		// A program that another test is just starting has the socket too until it is executed.
		var err error
		require.Eventually(t, func() bool { _, err = find(here, there); return err != nil }, time.Minute, time.Millisecond, name)
		require.ErrorIs(t, err, errGone, name)
	}
	require.NoError(t, Works(t.Context()))
}

func TestParseErrorNamesField(t *testing.T) {
	t.Parallel()
	for list, want := range map[string]string{"no-such-user": `user "no-such-user" is unknown`, "-3": "must not be negative"} {
		_, err := Parse(list)
		require.ErrorContains(t, err, want)
	}
	root, err := Parse("root,,daemon")
	require.NoError(t, err)
	require.False(t, root.All())
	require.Contains(t, new(ForeignError).Error(), "user 0")
}
