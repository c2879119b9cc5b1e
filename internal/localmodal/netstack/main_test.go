package netstack_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/overwinter-dev/overwinter/internal/hostports"
	"github.com/overwinter-dev/overwinter/internal/leaktest"
	"github.com/overwinter-dev/overwinter/internal/localmodal/netdevice"
	"github.com/overwinter-dev/overwinter/internal/localmodal/netstack"
)

const (
	insideName = "netstack-inside" // argument zero of a process in a new namespace
	clientName = "netstack-client" // argument zero of a client in the current namespace
	waitLimit  = 2 * time.Minute
	poll       = 5 * time.Millisecond

	hostPortsVariable = "TEST_HOST_PORTS" // ports for which the process opens sockets
)

func TestMain(m *testing.M) {
	switch os.Args[0] {
	case insideName:
		if err := enter(os.Args[1]); err != nil {
			_, _ = fmt.Fprintln(os.Stdout, "enter:", err)
			os.Exit(1)
		}
		client(os.Args[2], os.Args[3:])
	case clientName:
		client(os.Args[1], os.Args[2:])
	default:
		leaktest.Main(m)
	}
}

// enter opens a device in this process's namespace, sends it to the parent and waits until the
// parent serves it.
func enter(kind string) error {
	device, err := netdevice.OpenKind(netdevice.Kind(kind))
	if err != nil {
		return err
	}
	fds := []int{int(device.File.Fd())}
	if listed := os.Getenv(hostPortsVariable); listed != "" {
		ports, err := hostports.Parse(listed)
		if err != nil {
			return err
		}
		sockets, err := netdevice.OpenHostSockets(ports.First(netdevice.MaxHostSockets))
		if err != nil {
			return err
		}
		defer sockets.Close()
		for _, f := range sockets.Files() {
			fds = append(fds, int(f.Fd()))
		}
	}
	if err := unix.Sendmsg(3, []byte{1}, unix.UnixRights(fds...), nil, 0); err != nil {
		return err
	}
	n, err := unix.Read(3, make([]byte, 1))
	if n != 1 {
		return errors.Join(errors.New("the parent does not serve the device"), err)
	}
	return nil
}

// sandbox is a client in a separate namespace.
type sandbox struct {
	cmd     *exec.Cmd
	network *netstack.Network
	out     *bytes.Buffer
	// For a client in the mode "ask" (see ask).
	questions io.Writer
	answers   *bufio.Scanner
}

// ask sends a command to a client in the mode "ask" and returns its response.
func (s *sandbox) ask(t testing.TB, question ...string) string {
	t.Helper()
	s.begin(t, question...)
	return s.answer(t)
}

// begin is ask without waiting for the response.
func (s *sandbox) begin(t testing.TB, question ...string) {
	t.Helper()
	_, err := fmt.Fprintln(s.questions, strings.Join(question, " "))
	require.NoError(t, err)
}

func (s *sandbox) answer(t testing.TB) string {
	t.Helper()
	require.True(t, s.answers.Scan(), "the client has ended: %v", s.answers.Err())
	return s.answers.Text()
}

func start(t testing.TB, kind netdevice.Kind, config netstack.Config, args ...string) *sandbox {
	t.Helper()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	theirs, ours := os.NewFile(uintptr(pair[1]), "theirs"), os.NewFile(uintptr(pair[0]), "ours")
	defer ours.Close()
	s := &sandbox{out: &bytes.Buffer{}}
	s.cmd = exec.CommandContext(t.Context(), "/proc/self/exe")
	s.cmd.Args = append([]string{insideName, string(kind)}, args...)
	s.cmd.Stdout, s.cmd.Stderr, s.cmd.ExtraFiles = s.out, s.out, []*os.File{theirs}
	if args[0] == "ask" {
		s.cmd.Stdout = nil
		s.questions, err = s.cmd.StdinPipe()
		require.NoError(t, err)
		answers, err := s.cmd.StdoutPipe()
		require.NoError(t, err)
		s.answers = bufio.NewScanner(answers)
		t.Cleanup(func() {
			_ = s.cmd.Process.Kill() // it may have ended
			_ = s.cmd.Wait()
		})
	}
	if config.Listeners != nil {
		s.cmd.Env = append(os.Environ(), hostPortsVariable+"="+config.HostPorts.String())
	}
	one := func(id int) []syscall.SysProcIDMap { return []syscall.SysProcIDMap{{HostID: id, Size: 1}} }
	s.cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET, UidMappings: one(os.Geteuid()), GidMappings: one(os.Getegid()),
	}
	err = s.cmd.Start()
	require.NoError(t, errors.Join(err, theirs.Close()))
	control := make([]byte, unix.CmsgSpace(4*32))
	_, n, _, _, err := unix.Recvmsg(int(ours.Fd()), make([]byte, 1), control, unix.MSG_CMSG_CLOEXEC)
	require.NoError(t, err)
	messages, err := unix.ParseSocketControlMessage(control[:n])
	if err != nil || len(messages) != 1 {
		_ = s.cmd.Wait() // its output has the reason
		require.FailNow(t, "no device", s.out.String())
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	require.NoError(t, err)
	device, err := netdevice.Adopt(kind, os.NewFile(uintptr(fds[0]), "device"))
	require.NoError(t, err)
	if len(fds) > 1 {
		files := make([]*os.File, 0, len(fds))
		for _, fd := range fds[1:] {
			files = append(files, os.NewFile(uintptr(fd), "passed"))
		}
		config.HostSockets = netdevice.AdoptHostSockets(files)
	}
	if config.Resolvers == nil {
		config.Resolvers = func() []string { return nil }
	}
	s.network, err = netstack.New(device, config)
	require.NoError(t, err)
	t.Cleanup(s.network.Close)
	_, err = ours.Write([]byte{1})
	require.NoError(t, err)
	return s
}

// wait returns the output of the client.
func (s *sandbox) wait(t testing.TB) string {
	t.Helper()
	_ = s.cmd.Wait() // the output has the result
	return strings.TrimSpace(s.out.String())
}

// inside runs a client in a namespace until it ends.
func inside(t testing.TB, kind netdevice.Kind, config netstack.Config, args ...string) string {
	t.Helper()
	s := start(t, kind, config, args...)
	defer s.network.Close()
	return s.wait(t)
}

// outside runs a client on this machine, for comparison.
func outside(t testing.TB, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe")
	cmd.Args = append([]string{clientName}, args...)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return strings.TrimSpace(string(out))
}

// client simulates a program in a sandbox.
func client(mode string, args []string) {
	out, err := modes[mode](args)
	if err != nil {
		_, _ = fmt.Fprintln(os.Stdout, "error:", err)
	} else {
		_, _ = fmt.Fprintln(os.Stdout, out)
	}
	os.Exit(0)
}

func resolve(args []string) (string, error) {
	r := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		if args[0] == "tcp" {
			network = "tcp"
		}
		return (&net.Dialer{}).DialContext(ctx, network, netdevice.Gateway.String()+":53")
	}}
	addresses, err := r.LookupNetIP(context.Background(), args[1], args[2])
	return fmt.Sprint(addresses), err
}

var modes = map[string]func(args []string) (string, error){
	// dial connects to each address and prints the result, and whether it was immediate.
	"dial": func(args []string) (string, error) {
		var lines []string
		for _, address := range args {
			began := time.Now()
			conn, err := net.DialTimeout("tcp", address, waitLimit)
			if err == nil {
				err = conn.Close()
			}
			lines = append(lines, fmt.Sprintf("%s atOnce=%t %v", address, time.Since(began) < waitLimit/3, err))
		}
		return strings.Join(lines, "\n"), nil
	},
	// ask executes the commands in the lines of its input and prints a line for each.
	"ask": func([]string) (string, error) {
		var kept net.Conn
		var open []net.Conn // keeps connections from being closed by the garbage collector
		use := func(conn net.Conn) error {
			sent, got := []byte("hello"), make([]byte, 5)
			_ = conn.SetDeadline(time.Now().Add(waitLimit))
			if _, err := conn.Write(sent); err != nil {
				return err
			}
			_, err := io.ReadFull(conn, got)
			return err
		}
		for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
			words := strings.Fields(lines.Text())
			var err error
			switch words[0] {
			case "try": // a new connection
				var conn net.Conn
				if conn, err = ask(words[1], 'e', 0); err == nil {
					err = errors.Join(use(conn), conn.Close())
				}
			case "keep": // open a connection
				if kept, err = ask(words[1], 'e', 0); err == nil {
					open = append(open, kept)
					err = use(kept)
				}
			case "use": // that connection
				err = use(kept)
			case "drop":
				err = kept.Close()
			case "reset":
				err = errors.Join(kept.(*net.TCPConn).SetLinger(0), kept.Close())
			case "request": // open a connection, send a request and read nothing yet
				if kept, err = ask(words[1], 'd', 0); err == nil {
					err = kept.(*net.TCPConn).CloseWrite()
				}
			case "read": // read to the end, which must come after the given number of bytes
				var n int64
				n, err = io.Copy(io.Discard, kept)
				if err == nil && fmt.Sprint(n) != words[1] {
					err = fmt.Errorf("got %d bytes", n)
				}
			case "interface": // whether the interface exists
				_, err = net.InterfaceByName(words[1])
			case "listen": // on a port of every address
				_, err = net.Listen("tcp", words[1])
			}
			if err != nil {
				_, _ = fmt.Fprintln(os.Stdout, "error:", err)
			} else {
				_, _ = fmt.Fprintln(os.Stdout, "ok")
			}
		}
		runtime.KeepAlive(open)
		return "", nil
	},
	// many opens the given number of connections to an address sequentially, and prints how many
	// succeeded.
	"many": func(args []string) (string, error) {
		count, _ := strconv.Atoi(args[1])
		var open []net.Conn
		for range count {
			if conn, err := net.DialTimeout("tcp", args[0], waitLimit); err == nil {
				open = append(open, conn)
			}
		}
		return fmt.Sprint(len(open)), nil
	},
	// greet is many, but counts the connections with a response.
	"greet": func(args []string) (string, error) {
		count, _ := strconv.Atoi(args[1])
		var open []net.Conn
		for range count {
			conn, err := ask(args[0], 'e', 0)
			if err != nil {
				continue
			}
			if got, err := echoPacket(conn, []byte("x")); err == nil && len(got) == 1 {
				open = append(open, conn)
			}
		}
		return fmt.Sprint(len(open)), nil
	},
	// flows sends a packet from each of the given number of ports to an echo server, and prints how
	// many came back.
	"flows": func(args []string) (string, error) {
		count, _ := strconv.Atoi(args[1])
		var open []net.Conn
		for range count {
			conn, err := net.Dial("udp", args[0])
			if err != nil {
				return "", err
			}
			open = append(open, conn)
			if _, err := echoPacket(conn, []byte("x")); err != nil {
				return "", err
			}
		}
		return fmt.Sprint(len(open)), nil
	},
	"udp": func(args []string) (string, error) {
		conn, err := net.Dial("udp", args[0])
		if err != nil {
			return "", err
		}
		size, _ := strconv.Atoi(args[1])
		sent := bytes.Repeat([]byte("u"), size)
		got, err := echoPacket(conn, sent)
		return fmt.Sprint(bytes.Equal(got, sent)), err
	},
	// resolve queries the gateway, over TCP if requested or if a response is truncated.
	"resolve": func(args []string) (string, error) {
		return resolve(args)
	},
	// visit resolves a name and connects to a port of its first address.
	"visit": func(args []string) (string, error) {
		address, err := resolve([]string{"udp", "ip4", args[0]})
		if err != nil {
			return "", err
		}
		conn, err := net.DialTimeout("tcp", net.JoinHostPort(strings.Trim(address, "[]"), args[1]), waitLimit)
		if err != nil {
			return "", err
		}
		return "connected", conn.Close()
	},
	"raw": func(args []string) (string, error) {
		conn, err := net.Dial("ip4:icmp", args[0])
		if err != nil {
			return "", err
		}
		_, _ = conn.Write([]byte{8, 0, 0xf7, 0xfd, 0, 1, 0, 1})
		_ = conn.SetDeadline(time.Now().Add(300 * time.Millisecond))
		_, err = conn.Read(make([]byte, 99))
		return "answered", err
	},
	"down": func(args []string) (string, error) { return transfer('d', args) },
	"up":   func(args []string) (string, error) { return transfer('u', args) },
	// half sends, closes its direction, and reads the response.
	"half": func(args []string) (string, error) {
		conn, err := ask(args[0], 'e', 0)
		if err != nil {
			return "", err
		}
		_, _ = conn.Write([]byte("after you"))
		_ = conn.(*net.TCPConn).CloseWrite()
		got, err := io.ReadAll(conn)
		return string(got), err
	},
	"latency": func(args []string) (string, error) {
		conn, err := ask(args[0], 'e', 0)
		if err != nil {
			return "", err
		}
		rounds, _ := strconv.Atoi(args[1])
		b, times := make([]byte, 100), make([]time.Duration, rounds)
		for i := range times {
			began := time.Now()
			_, _ = conn.Write(b)
			if _, err := io.ReadFull(conn, b); err != nil {
				return "", err
			}
			times[i] = time.Since(began)
		}
		slices.Sort(times)
		return fmt.Sprint(times[len(times)/2].Nanoseconds()), nil
	},
	// request repeatedly connects, sends 100 bytes, reads them back and closes, and prints the
	// median time.
	"request": func(args []string) (string, error) {
		rounds, _ := strconv.Atoi(args[1])
		times := make([]time.Duration, rounds)
		for i := range times {
			began := time.Now()
			conn, err := ask(args[0], 'e', 0)
			if err != nil {
				return "", err
			}
			b := make([]byte, 100)
			_, _ = conn.Write(b)
			_, err = io.ReadFull(conn, b)
			if err := errors.Join(err, conn.Close()); err != nil {
				return "", err
			}
			times[i] = time.Since(began)
		}
		slices.Sort(times)
		return fmt.Sprint(times[len(times)/2].Nanoseconds()), nil
	},
	// parallel echoes 64 KiB over the given number of concurrent connections.
	"parallel": func(args []string) (string, error) {
		count, _ := strconv.Atoi(args[1])
		var group, connected sync.WaitGroup
		failures := make([]error, count)
		connected.Add(count)
		for i := range count {
			group.Go(func() {
				conn, err := ask(args[0], 'e', 0)
				connected.Done()
				if err != nil {
					failures[i] = err
					return
				}
				connected.Wait()
				sent, got := bytes.Repeat([]byte{byte(i)}, 64<<10), make([]byte, 64<<10)
				go func() { _, _ = conn.Write(sent) }()
				if _, failures[i] = io.ReadFull(conn, got); failures[i] == nil && !bytes.Equal(sent, got) {
					failures[i] = errors.New("other bytes came back")
				}
			})
		}
		group.Wait()
		return "done", errors.Join(failures...)
	},
	// storm opens connections forever.
	"storm": func(args []string) (string, error) {
		for range 20 {
			go func() {
				for {
					if conn, err := net.DialTimeout("tcp", args[0], waitLimit); err == nil {
						_ = conn.Close()
					}
				}
			}()
		}
		select {}
	},
}

func echoPacket(conn net.Conn, sent []byte) ([]byte, error) {
	_ = conn.SetDeadline(time.Now().Add(waitLimit))
	if _, err := conn.Write(sent); err != nil {
		return nil, err
	}
	got := make([]byte, 1<<16)
	n, err := conn.Read(got)
	return got[:n], err
}

// ask connects to a server and sends it a request.
func ask(address string, what byte, n int) (net.Conn, error) {
	conn, err := net.DialTimeout("tcp", address, waitLimit)
	if err != nil {
		return nil, err
	}
	_, err = conn.Write(binary.BigEndian.AppendUint64([]byte{what}, uint64(n)))
	return conn, err
}

// transfer transfers bytes and returns the rate per second.
func transfer(what byte, args []string) (string, error) {
	total, _ := strconv.Atoi(args[1])
	began := time.Now()
	conn, err := ask(args[0], what, total)
	if err != nil {
		return "", err
	}
	b := make([]byte, 256<<10)
	if what == 'd' {
		n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{conn}, b)
		if err != nil || n != int64(total) {
			return "", fmt.Errorf("got %d bytes: %w", n, err)
		}
	} else {
		for sent := 0; sent < total; sent += len(b) {
			if _, err := conn.Write(b); err != nil {
				return "", err
			}
		}
		_ = conn.(*net.TCPConn).CloseWrite() // the response follows the end of our direction
		if _, err := io.ReadFull(conn, b[:8]); err != nil || binary.BigEndian.Uint64(b) != uint64(total) {
			return "", fmt.Errorf("%d bytes arrived: %w", binary.BigEndian.Uint64(b), err)
		}
	}
	return fmt.Sprint(int(float64(total) / time.Since(began).Seconds())), nil
}

// serve sends, receives or echoes data, as requested by the client, and returns the server's
// address.
func serve(t testing.TB, address string) net.Addr {
	t.Helper()
	return serveUntil(t, address).listener.Addr()
}

// server is the server that serve starts.
type server struct{ listener net.Listener }

// stop stops listening; connections stay open.
func (s *server) stop(t testing.TB) {
	t.Helper()
	require.NoError(t, s.listener.Close())
}

func serveUntil(t testing.TB, address string) *server {
	t.Helper()
	listener, err := net.Listen("tcp", address)
	require.NoError(t, err)
	var group sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(func() {
		cancel()
		_ = listener.Close() // it may have been stopped
		group.Wait()
	})
	group.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			group.Go(func() {
				defer conn.Close()
				defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
				answer(conn)
			})
		}
	})
	return &server{listener}
}

// buffers are shared by connections: garbage of the server would slow down the stack, which is in the same process.
var buffers = sync.Pool{New: func() any { return new(make([]byte, 256<<10)) }}

func answer(conn net.Conn) {
	pooled := buffers.Get().(*[]byte) // the pool contains only these
	defer buffers.Put(pooled)
	head, b := make([]byte, 9), *pooled
	if _, err := io.ReadFull(conn, head); err != nil {
		return
	}
	switch n := int(binary.BigEndian.Uint64(head[1:])); head[0] {
	case 'd':
		for err := error(nil); n > 0 && err == nil; n -= len(b) {
			_, err = conn.Write(b[:min(n, len(b))])
		}
	case 'u':
		n, _ := io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{conn}, b)
		_, _ = conn.Write(binary.BigEndian.AppendUint64(nil, uint64(n)))
	case 'e':
		_, _ = io.CopyBuffer(struct{ io.Writer }{conn}, struct{ io.Reader }{conn}, b)
	}
}
