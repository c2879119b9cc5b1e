package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	sdklog "go.temporal.io/sdk/log"
)

// waitLimit bounds every wait of a test. It is generous because the tests of all packages share the
// machine.
const waitLimit = 2 * time.Minute

// Variables that give the test binary another role.
const (
	// asServer makes it the program itself, with the given arguments.
	asServer = "OVERWINTER_TEMPORAL_TEST_SERVER"
	// asParent makes it start the program with the given arguments and wait for it.
	asParent = "OVERWINTER_TEMPORAL_TEST_PARENT"
	// asStranger makes it a client that tries the addresses in its arguments.
	asStranger = "OVERWINTER_TEMPORAL_TEST_STRANGER"
)

func TestMain(m *testing.M) {
	switch {
	case os.Getenv(asServer) != "":
		main()
	case os.Getenv(asParent) != "":
		parent()
	case os.Getenv(asStranger) != "":
		try(os.Args[1:])
	default:
		os.Exit(m.Run())
	}
}

// parent is a minimal supervisor: its child has its standard files.
func parent() {
	cmd := exec.Command(os.Args[0], os.Args[1:]...)
	cmd.Env = append(os.Environ(), asParent+"=", asServer+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// bundle has the ports and the database file of one server.
type bundle struct {
	port, uiPort int
	dbFile       string
}

func setup(t *testing.T) *bundle {
	t.Helper()
	return &bundle{port: freePort(t), uiPort: freePort(t), dbFile: filepath.Join(t.TempDir(), "temporal 100%?.db")}
}

func (b *bundle) address() string { return "127.0.0.1:" + strconv.Itoa(b.port) }

// args returns the arguments of the server, without UI by default.
func (b *bundle) args(more ...string) []string {
	return append([]string{
		"serve", "--port", strconv.Itoa(b.port), "--ui-port", "0", "--db-file", b.dbFile, "--log-level", "error",
	}, more...)
}

// start starts the server and returns when it reports that it is ready.
func (b *bundle) start(t *testing.T, more ...string) *process {
	t.Helper()
	p := launch(t, asServer, b.args(more...))
	p.waitReady(t)
	return p
}

func (b *bundle) client(t *testing.T, namespace string) client.Client {
	t.Helper()
	c, err := client.DialContext(t.Context(), client.Options{HostPort: b.address(), Namespace: namespace, Logger: quiet{}})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

// process is a run of the program.
type process struct {
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stdout *lines
	stderr *lines
	exited chan struct{} // closed when err is set
	err    error
}

// launch starts the test binary in the given role. It is killed at the end of the test.
func launch(t *testing.T, role string, args []string) *process {
	t.Helper()
	p := &process{cmd: exec.Command(os.Args[0], args...), exited: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), role+"=1")
	stdin, err := p.cmd.StdinPipe()
	require.NoError(t, err)
	p.stdin = stdin
	stdout, err := p.cmd.StdoutPipe()
	require.NoError(t, err)
	stderr, err := p.cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, p.cmd.Start())
	p.stdout, p.stderr = follow(stdout), follow(stderr)
	go func() {
		defer close(p.exited)
		<-p.stdout.done // Wait closes the pipes, so they are read to their end first
		<-p.stderr.done
		p.err = p.cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // it may have ended already
		<-p.exited
		if t.Failed() {
			t.Logf("stderr of %v:\n%s", args, p.stderr.text())
		}
	})
	return p
}

func (p *process) waitReady(t *testing.T) {
	t.Helper()
	select {
	case <-p.stdout.wait("ready"):
	case <-p.exited:
		require.FailNow(t, "the server ended before it was ready", "%v: %s", p.err, p.stderr.text())
	case <-time.After(waitLimit):
		require.FailNow(t, "the server is not ready in time", p.stderr.text())
	}
}

// waitExit returns how the process ended.
func (p *process) waitExit(t *testing.T) error {
	t.Helper()
	select {
	case <-p.exited:
		return p.err
	case <-time.After(waitLimit):
		require.FailNow(t, "the process did not end", p.stderr.text())
		return nil
	}
}

// kill ends the process with SIGKILL.
func (p *process) kill(t *testing.T) {
	t.Helper()
	require.NoError(t, p.cmd.Process.Kill())
	require.Error(t, p.waitExit(t))
}

// terminate sends SIGTERM and requires a graceful end.
func (p *process) terminate(t *testing.T) {
	t.Helper()
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
	require.NoError(t, p.waitExit(t))
}

// lines collects the output of a process, line by line.
type lines struct {
	done chan struct{} // closed at the end of the stream

	mu      sync.Mutex
	all     []string
	waiting map[string]chan struct{}
}

func follow(r io.Reader) *lines {
	l := &lines{done: make(chan struct{}), waiting: map[string]chan struct{}{}}
	go func() {
		defer close(l.done)
		scanner := bufio.NewScanner(r)
		scanner.Buffer(nil, 1<<20)
		for scanner.Scan() {
			l.add(scanner.Text())
		}
	}()
	return l
}

func (l *lines) add(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, line)
	if found, ok := l.waiting[line]; ok {
		close(found)
		delete(l.waiting, line)
	}
}

// wait returns a channel that is closed once the line was written. One waiter per line.
func (l *lines) wait(line string) <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	found := make(chan struct{})
	for _, seen := range l.all {
		if seen == line {
			close(found)
			return found
		}
	}
	l.waiting[line] = found
	return found
}

func (l *lines) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.all, "\n")
}

// givenPorts are the ports that this run of the tests has used.
var givenPorts sync.Map

// freePort returns a port that was free a moment ago, below the range of outgoing connections, so
// that none of them takes it in the meantime. It returns each port once.
func freePort(t *testing.T) int {
	t.Helper()
	for range 1000 {
		port := 10_000 + rand.IntN(20_000)
		if _, given := givenPorts.LoadOrStore(port, true); given {
			continue
		}
		var lc net.ListenConfig
		l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:"+strconv.Itoa(port))
		if err != nil {
			continue
		}
		require.NoError(t, l.Close())
		return port
	}
	require.FailNow(t, "no port is free")
	return 0
}

// eventually polls until try succeeds, and fails with its last error.
func eventually(t *testing.T, try func(ctx context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	for {
		err := try(ctx)
		if err == nil {
			return
		}
		select {
		case <-poll.C:
		case <-ctx.Done():
			require.NoError(t, err, "still after %s", waitLimit)
		}
	}
}

// alive reports whether a process exists that is not a zombie.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if errors.Is(err, os.ErrNotExist) {
		return false
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return err == nil && !strings.HasPrefix(rest, "Z")
}

// quiet drops what the SDK logs when servers are killed under it.
type quiet struct{}

var _ sdklog.Logger = quiet{}

func (quiet) Debug(string, ...any) {}
func (quiet) Info(string, ...any)  {}
func (quiet) Warn(string, ...any)  {}
func (quiet) Error(string, ...any) {}
