package test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
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

	"github.com/overwinter-dev/overwinter/internal/memorytest"
	"github.com/overwinter-dev/overwinter/internal/porttest"
	"github.com/overwinter-dev/overwinter/internal/postgres/postgrestest"
)

// stack is one running `overwinter dev`.
type stack struct {
	dir         string // its data directory
	api         string // address of the API, host:port
	engine      string // address of Temporal
	databaseURL string // "" for its own Postgres
	ui          int
	args        []string
	env         []string // added to the environment
	cmd         *exec.Cmd
	out         *safeBuffer
	stopped     bool
}

// startStack starts a system and stops it when the test ends, and checks that nothing of it is
// left. It uses the Postgres server and the Temporal server that the tests share: to create a server,
// apply all migrations and start Temporal for each test would take more than half of the processor
// time of a start.
func startStack(t *testing.T, extra ...string) *stack {
	t.Helper()
	return startStackEnv(t, nil, extra...)
}

// startStackEnv is startStack with variables added to the environment.
func startStackEnv(t *testing.T, env []string, extra ...string) *stack {
	t.Helper()
	address := sharedTemporalAddress(t)
	s := startTemporalStack(t, env, append([]string{"--temporal-address", address}, extra...)...)
	s.engine = address
	return s
}

// startTemporalStack is startStackEnv for a system that also runs its own Temporal: for tests that
// stop Temporal or search its files.
func startTemporalStack(t *testing.T, env []string, extra ...string) *stack {
	t.Helper()
	database := postgrestest.URL(t)
	s := launch(t, env, stackDir(t), append([]string{"--database-url", database}, extra...)...)
	s.databaseURL = database
	return s
}

// startWholeStack is startStack for a system that also creates and runs its own Postgres.
func startWholeStack(t *testing.T, extra ...string) *stack {
	t.Helper()
	return launch(t, nil, stackDir(t), extra...)
}

// Garbage collection takes a sixth of the processor time of a system with little work. Tests that
// bound memory use the default.
const lazyCollector, defaultCollector = "GOGC=400", "GOGC=100"

// launch starts a system in a data directory. Without flags that say otherwise, it runs its own
// Postgres and Temporal.
func launch(t *testing.T, env []string, dir string, extra ...string) *stack {
	t.Helper()
	apiPort, temporalPort, uiPort := porttest.Free(t), porttest.Free(t), porttest.Free(t)
	env = append([]string{
		"OVERWINTER_DRAIN_TIMEOUT=0s",   // an ending test does not wait for turns
		"OVERWINTER_RECONCILE_EVERY=5s", // many tests wait for the reconciler
		lazyCollector,
	}, env...)
	s := &stack{dir: dir, env: env, api: fmt.Sprintf("127.0.0.1:%d", apiPort), engine: fmt.Sprintf("127.0.0.1:%d", temporalPort), ui: uiPort}
	s.args = append([]string{
		"dev", "--data-dir", dir, "--api-address", s.api,
		"--temporal-port", strconv.Itoa(temporalPort), "--temporal-ui-port", strconv.Itoa(uiPort),
		"--sandbox-host-ports", "1024-65535", // servers of tests
	}, extra...)
	t.Cleanup(func() {
		if t.Failed() {
			s.dump(t)
		}
		s.stop(t)
		left := s.processes()
		for pid, line := range left {
			syscall.Kill(pid, syscall.SIGKILL) //nolint:errcheck // it may end by itself meanwhile
			t.Errorf("still running after the end: %d %s", pid, line)
		}
	})
	s.start(t)
	return s
}

// stackDir returns a data directory that an unprivileged Postgres can reach too. It is in memory if
// there is enough: on the disk, the creation of its files takes a seventh of the processor time of a
// test with little work.
func stackDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp(memorytest.Executable(), "overwinter-test-*") //nolint:usetesting // t.TempDir is on the disk, and closed to other users
	require.NoError(t, err)
	require.NoError(t, os.Chmod(dir, 0o755)) // Postgres runs as another user below it
	t.Cleanup(func() {
		eventually(t, within, "the data directory can be deleted", func() error { return os.RemoveAll(dir) })
	})
	return filepath.Join(dir, "data")
}

func (s *stack) start(t *testing.T) {
	t.Helper()
	s.out = &safeBuffer{}
	s.cmd = exec.Command(program(t, "overwinter"), s.args...) // our own program; it is stopped gracefully
	s.cmd.Env = append(os.Environ(), s.env...)
	s.cmd.Stdout, s.cmd.Stderr = s.out, s.out
	require.NoError(t, s.cmd.Start())
	s.stopped = false
	s.waitReady(t)
}

func (s *stack) waitReady(t *testing.T) {
	t.Helper()
	eventually(t, within, "the system is ready", func() error {
		response, err := http.Get("http://" + s.api + "/readyz")
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK {
			body, _ := io.ReadAll(response.Body)
			return fmt.Errorf("readyz: %d %s", response.StatusCode, body)
		}
		return nil
	})
}

// stop ends the system as Ctrl-C does.
func (s *stack) stop(t *testing.T) {
	t.Helper()
	if s.stopped {
		return
	}
	s.stopped = true
	require.NoError(t, s.cmd.Process.Signal(os.Interrupt))
	done := make(chan error, 1)
	go func() { done <- s.cmd.Wait() }()
	select {
	case err := <-done:
		require.NoError(t, err, "overwinter dev did not end cleanly:\n%s", s.out)
	case <-time.After(2 * time.Minute):
		s.cmd.Process.Kill() //nolint:errcheck // the test has failed already
		<-done               //nolint:errcheck // killed
		t.Fatalf("overwinter dev did not stop within 2m:\n%s", s.out)
	}
}

// kill ends `overwinter dev` itself with SIGKILL.
func (s *stack) kill(t *testing.T) {
	t.Helper()
	require.NoError(t, s.cmd.Process.Kill())
	s.cmd.Wait() //nolint:errcheck // killed
	s.stopped = true
}

// processes returns the processes of this system by id, with their command lines: the descendants
// of `overwinter dev`, and any process that names its data directory, such as one that a killed
// `dev` left running.
func (s *stack) processes() map[int]string {
	table := processTable()
	out := map[int]string{}
	for pid, p := range table {
		if s.owns(table, pid) {
			out[pid] = p.line
		}
	}
	return out
}

func (s *stack) owns(table processes, pid int) bool {
	return table.descends(pid, s.cmd.Process.Pid) || strings.Contains(table[pid].line, s.dir) || strings.Contains(environ(pid), s.dir)
}

// child returns the process id of the child whose command line has all of words.
func (s *stack) child(t *testing.T, words ...string) int {
	t.Helper()
	var found int
	eventually(t, within, "there is a child "+strings.Join(words, " "), func() error {
		table := processTable()
		for pid, p := range table {
			if pid != s.cmd.Process.Pid && containsAll(p.line, words) && s.owns(table, pid) {
				found = pid
				return nil
			}
		}
		return fmt.Errorf("none of %v", s.processes())
	})
	return found
}

// killChild kills a child of the stack: see child. One that was found while it ended, for example
// because it had just been killed, does not count.
func (s *stack) killChild(t *testing.T, words ...string) {
	t.Helper()
	eventually(t, within, "a child "+strings.Join(words, " ")+" is killed", func() error {
		return syscall.Kill(s.child(t, words...), syscall.SIGKILL)
	})
}

func (s *stack) dump(t *testing.T) {
	t.Helper()
	t.Logf("output of overwinter dev:\n%s", s.out)
	logs, _ := filepath.Glob(filepath.Join(s.dir, "logs", "*.log"))
	for _, name := range logs {
		raw, err := os.ReadFile(name)
		if err != nil {
			continue
		}
		if len(raw) > 8<<10 {
			raw = raw[len(raw)-8<<10:]
		}
		t.Logf("%s:\n%s", filepath.Base(name), raw)
	}
}

func containsAll(s string, words []string) bool {
	for _, w := range words {
		if !strings.Contains(s, w) {
			return false
		}
	}
	return true
}

// program returns the path of one of the three programs.
func program(t *testing.T, name string) string {
	t.Helper()
	path, err := builtProgram(name)
	require.NoError(t, err)
	return path
}

func builtProgram(name string) (string, error) {
	path, err := filepath.Abs(filepath.Join("..", "bin", name))
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("the programs are not built: run make build: %w", err)
	}
	return path, nil
}

// eventually calls try until it succeeds, with pauses in between, and fails with its last error
// after the timeout. The pauses grow with the time that has passed: tests wait for minutes in
// total, and each try costs a request.
func eventually(t *testing.T, within time.Duration, what string, try func() error) {
	t.Helper()
	began := time.Now()
	for {
		err := try()
		if err == nil {
			return
		}
		waited := time.Since(began)
		if waited > within {
			t.Fatalf("not within %s: %s: %v", within, what, err)
		}
		<-time.After(min(max(waited/20, 50*time.Millisecond), 500*time.Millisecond))
	}
}

type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safeBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *safeBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// sandboxTree returns the processes in the sandboxes of this stack: the descendants of its local
// Modal server.
func (s *stack) sandboxTree() map[int]string {
	table := processTable()
	out := map[int]string{}
	for root, p := range table {
		if !strings.Contains(p.line, "overwinter local-modal") || !s.owns(table, root) {
			continue
		}
		for pid, p := range table {
			if pid != root && table.descends(pid, root) {
				out[pid] = p.line
			}
		}
	}
	return out
}

type process struct {
	parent int
	line   string
}

type processes map[int]process

// processTable reads /proc, without zombies, which have ended.
func processTable() processes {
	out := processes{}
	entries, _ := filepath.Glob("/proc/[0-9]*")
	for _, e := range entries {
		pid, err := strconv.Atoi(filepath.Base(e))
		if err != nil || pid == os.Getpid() {
			continue
		}
		stat, err := os.ReadFile(filepath.Join(e, "stat"))
		if err != nil {
			continue
		}
		_, rest, _ := strings.Cut(string(stat), ") ")
		fields := strings.Fields(rest)
		if len(fields) < 2 || fields[0] == "Z" {
			continue
		}
		p := process{}
		p.parent, _ = strconv.Atoi(fields[1])
		raw, _ := os.ReadFile(filepath.Join(e, "cmdline"))
		p.line = string(bytes.ReplaceAll(bytes.TrimRight(raw, "\x00"), []byte{0}, []byte{' '}))
		out[pid] = p
	}
	return out
}

// environ returns the initial environment of a process.
func environ(pid int) string {
	raw, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	return string(raw)
}

// descends reports whether a process is another one or its descendant.
func (t processes) descends(pid, ancestor int) bool {
	for pid > 1 {
		if pid == ancestor {
			return true
		}
		pid = t[pid].parent
	}
	return false
}
