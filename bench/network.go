package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/overwinter-dev/overwinter/internal/sandbox"
	"github.com/overwinter-dev/overwinter/internal/sandbox/driver"
)

// requestRounds is the number of requests for one median.
const requestRounds = 1000

// measureNetwork compares the network of a sandbox with the loopback interface of the machine.
func measureNetwork(ctx context.Context, b *bench, s *section) (err error) {
	server, err := serveNetwork()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.close()) }()
	sys, err := b.newSystem(ctx, "--sandbox-host-ports", server.port()) // a range would be served in a different way
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, sys.close(context.WithoutCancel(ctx))) }()
	s.note("A client runs in a sandbox and on the machine, in turns; its server is the bench. Through the sandbox's network it connects to `%s`, "+
		"whose name it resolves once. "+
		"A transfer is %d MiB over one connection; a request is 100 bytes and their echo.", hostName, b.options.Transfer)
	id, err := sys.bare.create(ctx, sandbox.DefaultBase)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, sys.bare.modal.Terminate(context.WithoutCancel(ctx), id)) }()
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		return err
	}
	const program = "/tmp/bench"
	size := b.options.Transfer << 20
	if err := sys.bare.modal.WriteFile(ctx, id, program, self, 0o755); err != nil {
		return fmt.Errorf("write the client: %w", err)
	}
	within := func(mode string, n int) (float64, error) {
		return sys.bare.run(ctx, id, program, mode, net.JoinHostPort(hostName, server.port()), strconv.Itoa(n))
	}
	without := func(mode string, n int) (float64, error) {
		out, err := roleCommand(ctx, "network", mode, net.JoinHostPort("127.0.0.1", server.port()), strconv.Itoa(n)).Output()
		if err != nil {
			return 0, err
		}
		return strconv.ParseFloat(strings.TrimSpace(string(out)), 64)
	}
	for _, m := range []struct {
		name, mode string
		n          int
		rate       bool
	}{
		{"bulk into the sandbox", "down", size, true},
		{"bulk out of the sandbox", "up", size, true},
		{"request on a new connection", "request", requestRounds, false},
		{"request on an open connection", "exchange", requestRounds, false},
	} {
		in, out := &samples{}, &samples{}
		for range 3 {
			for _, side := range []struct {
				into *samples
				run  func(string, int) (float64, error)
			}{{in, within}, {out, without}} {
				took, err := side.run(m.mode, m.n)
				if err != nil {
					return fmt.Errorf("%s: %w", m.name, err)
				}
				side.into.add(time.Duration(took * float64(time.Second)))
			}
		}
		if m.rate {
			rate := func(s *samples) value { return number(float64(m.n)/s.p50().Seconds(), bytesPerSecond) }
			s.compare(m.name, rate(in), "loopback", rate(out), noGoal)
			continue
		}
		each := func(s *samples) value { return number(s.p50().Seconds(), seconds) }
		s.compare(m.name, each(in), "loopback", each(out), noGoal)
	}
	return measureSandboxStart(ctx, b, sys, s)
}

// hostName is the name of this machine in sandboxes with their own network.
const hostName = "host.overwinter.internal"

// measureSandboxStart compares the start of a sandbox that has its own network with one that shares
// the machine's.
func measureSandboxStart(ctx context.Context, b *bench, own *system, s *section) (err error) {
	sharing, err := b.newSystem(ctx, "--sandbox-network", "shared")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, sharing.close(context.WithoutCancel(ctx))) }()
	kinds := map[*system]*samples{own: {}, sharing: {}}
	for i := range b.options.Sleeps + 2 {
		for _, sys := range []*system{own, sharing} {
			began := time.Now()
			id, err := sys.bare.create(ctx, sandbox.DefaultBase)
			if err != nil {
				return err
			}
			if _, err := sys.bare.run(ctx, id, "/bin/echo", "1"); err != nil {
				return err
			}
			if i >= 2 { // caches are warm
				kinds[sys].add(time.Since(began))
			}
			if err := sys.bare.modal.Terminate(ctx, id); err != nil {
				return err
			}
		}
	}
	s.compare("create until the end of its first exec, separate network", distribution(kinds[own]), "the machine's network", distribution(kinds[sharing]), noGoal)
	return nil
}

// run runs a program in a sandbox and returns the number that it prints.
func (b *bare) run(ctx context.Context, sandboxID string, argv ...string) (float64, error) {
	process, err := b.modal.Exec(ctx, sandboxID, driver.ExecRequest{
		Argv: argv, Env: map[string]string{roleVariable: "network"}, Timeout: waitLimit,
	})
	if err != nil {
		return 0, err
	}
	defer process.Stderr().Close()
	defer process.Stdout().Close()
	if err := process.Stdin().Close(); err != nil {
		return 0, err
	}
	out, err := io.ReadAll(process.Stdout())
	if err != nil {
		return 0, err
	}
	output, _ := io.ReadAll(io.LimitReader(process.Stderr(), 4<<10)) // says why it failed
	code, err := process.Wait(ctx)
	if err != nil || code != 0 {
		return 0, errors.Join(fmt.Errorf("%s ended with %d: %s", argv[0], code, output), err)
	}
	return strconv.ParseFloat(strings.TrimSpace(string(out)), 64)
}

// networkServer sends, receives or echoes data, as its clients request.
type networkServer struct {
	listener net.Listener
	group    sync.WaitGroup
}

func serveNetwork() (*networkServer, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // close ends it
	if err != nil {
		return nil, err
	}
	s := &networkServer{listener: listener}
	s.group.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			s.group.Go(func() {
				defer conn.Close()
				answer(conn)
			})
		}
	})
	return s, nil
}

func (s *networkServer) port() string { return strconv.Itoa(s.listener.Addr().(*net.TCPAddr).Port) }

func (s *networkServer) close() error {
	err := s.listener.Close()
	s.group.Wait()
	return err
}

// chunk is the size of reads and writes.
const chunk = 256 << 10

// answer serves one connection: its first byte is the mode, the next eight are the size.
func answer(conn net.Conn) {
	head, b := make([]byte, 9), make([]byte, chunk)
	if _, err := io.ReadFull(conn, head); err != nil {
		return
	}
	switch n := int64(binary.BigEndian.Uint64(head[1:])); head[0] {
	case 'd':
		for err := error(nil); n > 0 && err == nil; n -= chunk {
			_, err = conn.Write(b[:min(n, chunk)])
		}
	case 'u':
		got, _ := io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{io.LimitReader(conn, n)}, b) // the client compares the echo
		_, _ = conn.Write(binary.BigEndian.AppendUint64(nil, uint64(got)))
	case 'e':
		_, _ = io.Copy(struct{ io.Writer }{conn}, struct{ io.Reader }{conn}) // until the client disconnects
	}
}

// useNetwork is the client: it uses the server at an address in the given mode and prints the
// duration in seconds: of the whole transfer, or the median of requests.
func useNetwork(args []string) error {
	if len(args) != 3 {
		return errors.New("mode, address and number are needed")
	}
	n, err := strconv.Atoi(args[2])
	if err != nil {
		return err
	}
	// The name is resolved only once, because on loopback no name is resolved.
	resolved, err := net.ResolveTCPAddr("tcp", args[1])
	if err != nil {
		return err
	}
	var took time.Duration
	switch mode, address := args[0], resolved.String(); mode {
	case "down", "up":
		took, err = transfer(mode[0], address, n)
	case "request":
		took, err = repeat(n, func() error {
			conn, err := ask('e', address, 0)
			if err != nil {
				return err
			}
			return errors.Join(echo(conn), conn.Close())
		})
	case "exchange":
		var conn net.Conn
		if conn, err = ask('e', address, 0); err != nil {
			return err
		}
		defer conn.Close()
		took, err = repeat(n, func() error { return echo(conn) })
	default:
		return fmt.Errorf("no such mode: %s", mode)
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(os.Stdout, took.Seconds())
	return err
}

// repeat returns the median duration of n calls.
func repeat(n int, do func() error) (time.Duration, error) {
	s := &samples{}
	for range n {
		began := time.Now()
		if err := do(); err != nil {
			return 0, err
		}
		s.add(time.Since(began))
	}
	return s.p50(), nil
}

// ask connects to the server and sends it the request.
func ask(what byte, address string, n int) (net.Conn, error) {
	conn, err := net.DialTimeout("tcp", address, waitLimit) //nolint:noctx // a separate process
	if err != nil {
		return nil, err
	}
	_, err = conn.Write(binary.BigEndian.AppendUint64([]byte{what}, uint64(n)))
	return conn, err
}

func echo(conn net.Conn) error {
	b := make([]byte, 100)
	if _, err := conn.Write(b); err != nil {
		return err
	}
	_, err := io.ReadFull(conn, b)
	return err
}

func transfer(what byte, address string, n int) (time.Duration, error) {
	began := time.Now()
	conn, err := ask(what, address, n)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	b := make([]byte, chunk)
	if what == 'd' {
		got, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{conn}, b)
		if err != nil || got != int64(n) {
			return 0, errors.Join(fmt.Errorf("%d of %d bytes arrived", got, n), err)
		}
		return time.Since(began), nil
	}
	for sent := 0; sent < n; sent += len(b) {
		if _, err := conn.Write(b[:min(len(b), n-sent)]); err != nil {
			return 0, err
		}
	}
	if _, err := io.ReadFull(conn, b[:8]); err != nil {
		return 0, err
	}
	if got := binary.BigEndian.Uint64(b); got != uint64(n) {
		return 0, fmt.Errorf("%d of %d bytes arrived", got, n)
	}
	return time.Since(began), nil
}
