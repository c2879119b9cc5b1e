package test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/overwinter-dev/overwinter/internal/porttest"
	"github.com/overwinter-dev/overwinter/internal/postgres/postgrestest"
)

// rig is a stack whose Postgres belongs to the test, and Temporal too if the test may stop it. Each is
// accessed through a proxy, so that every part and every connection between parts can be made to fail.
//
//	api, worker ──▶ database ──▶ Postgres
//	           └──▶ engine ────▶ Temporal
//
// Each additional worker may have its own proxy to Postgres.
type rig struct {
	*stack
	postgres postgresServer
	temporal *temporalServer
	database *proxy
	engine   *proxy
	hits     *hits
	extra    []*supervised // further workers
	second   *supervised   // a second api; nil without one
}

// startRig starts a rig with a number of workers. Its Temporal is the server that the tests share.
func startRig(t *testing.T, workers int) *rig {
	t.Helper()
	return startRigEnv(t, nil, workers)
}

// startRigEnv is startRig with variables added to the environment.
func startRigEnv(t *testing.T, env []string, workers int) *rig {
	t.Helper()
	return startRigWith(t, sharedTemporal(t), env, workers)
}

// startWholeRig is startRig for a test that may stop Temporal.
func startWholeRig(t *testing.T, workers int) *rig {
	t.Helper()
	return startRigWith(t, startTemporal(t), nil, workers)
}

func startRigWith(t *testing.T, temporal *temporalServer, env []string, workers int) *rig {
	t.Helper()
	r := &rig{postgres: startPostgres(t), temporal: temporal, hits: newHits(t)}
	r.database = newProxy(t, r.dialPostgres)
	r.engine = newProxy(t, func() (net.Conn, error) { return net.Dial("tcp", r.temporal.address) })
	r.stack = launch(t, env, stackDir(t), "--database-url", r.databaseURL(r.database), "--temporal-address", r.engine.address)
	for range workers - 1 {
		r.addWorker(t, r.database)
	}
	return r
}

func (r *rig) dialPostgres() (net.Conn, error) { return net.Dial("unix", r.postgres.socket) }

func (r *rig) databaseURL(through *proxy) string {
	return fmt.Sprintf("postgres://%s@%s/%s?sslmode=disable", r.postgres.user, through.address, r.postgres.database)
}

// addWorker starts another worker, which reaches Postgres through the given proxy.
func (r *rig) addWorker(t *testing.T, through *proxy) {
	t.Helper()
	first := r.child(t, "overwinter", "worker")
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", first))
	require.NoError(t, err)
	env := slices.DeleteFunc(strings.Split(strings.TrimRight(string(raw), "\x00"), "\x00"), func(v string) bool {
		return strings.HasPrefix(v, "OVERWINTER_DATABASE_URL=")
	})
	health := fmt.Sprintf("127.0.0.1:%d", porttest.Free(t))
	logs, err := os.Create(filepath.Join(r.dir, "logs", fmt.Sprintf("worker%d.log", len(r.extra)+2)))
	require.NoError(t, err)
	t.Cleanup(func() { logs.Close() })
	path := program(t, "overwinter")
	r.extra = append(r.extra, supervise(t, func() *exec.Cmd {
		cmd := exec.Command(path, "worker", "--health-address", health)
		cmd.Env = append(slices.Clone(env), "OVERWINTER_DATABASE_URL="+r.databaseURL(through))
		cmd.Stdout, cmd.Stderr = logs, logs
		return cmd
	}))
	eventually(t, 60*time.Second, "the worker is ready", func() error { return isReady("http://" + health + "/readyz") })
}

func isReady(url string) error {
	response, err := http.Get(url)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %d", url, response.StatusCode)
	}
	return nil
}

// connect opens the test's own connection to Postgres, which no fault of a proxy affects.
func (r *rig) connect(t *testing.T) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), r.postgres.url)
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close(context.WithoutCancel(t.Context())) })
	return conn
}

// lockRow locks the row of a session for d, like a stuck transaction of another program.
func (r *rig) lockRow(t *testing.T, sessionID string, d time.Duration) {
	t.Helper()
	conn := r.connect(t)
	tx, err := conn.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), "SELECT FROM sessions WHERE id = $1 FOR UPDATE", sessionID)
	require.NoError(t, err)
	<-time.After(d)
	require.NoError(t, tx.Rollback(t.Context()))
}

// A part of a rig, by the role of its processes.
type part string

const (
	partAPI        part = "api"
	partWorker     part = "worker"
	partLocalModal part = "local-modal"
	partTemporal   part = "temporal"
	partPostgres   part = "postgres"
	partRunner     part = "runner" // in the sandboxes
	partAgent      part = "agent"
	partAttach     part = "attach" // the sandbox's end of a link
	partInit       part = "init"   // of a sandbox
)

// pids returns the processes of a part.
func (r *rig) pids(p part) []int {
	table := processTable()
	var out []int
	for pid, process := range table {
		if r.partOf(table, pid, process) == p {
			out = append(out, pid)
		}
	}
	slices.Sort(out)
	return out
}

func (r *rig) partOf(table processes, pid int, p process) part {
	switch {
	case table.descends(pid, r.postgres.pid):
		return partPostgres
	case r.temporal.supervised != nil && pid == r.temporal.pid():
		return partTemporal
	case slices.ContainsFunc(r.extra, func(w *supervised) bool { return w.pid() == pid }):
		return partWorker
	case !table.descends(pid, r.cmd.Process.Pid):
		return ""
	case strings.Contains(p.line, "overwinter api"):
		return partAPI
	case strings.Contains(p.line, "overwinter worker"):
		return partWorker
	case strings.Contains(p.line, "overwinter local-modal"):
		return partLocalModal
	case strings.Contains(p.line, "runner demo-agent"):
		return partAgent
	case strings.Contains(p.line, "runner attach"):
		return partAttach
	case strings.Contains(p.line, "runner serve"):
		return partRunner
	case strings.Contains(table[p.parent].line, "overwinter local-modal"):
		return partInit
	}
	return ""
}

// freeze stops processes for d, like a paused virtual machine or a starved host.
func freeze(pids []int, d time.Duration) {
	for _, pid := range pids {
		syscall.Kill(pid, syscall.SIGSTOP) //nolint:errcheck // it may have ended
	}
	<-time.After(d)
	for _, pid := range pids {
		syscall.Kill(pid, syscall.SIGCONT) //nolint:errcheck // it may have ended
	}
}

// useUpFiles prevents processes from opening files, connections or pipes for d.
func useUpFiles(t *testing.T, pids []int, d time.Duration) {
	t.Helper()
	before := map[int]unix.Rlimit{}
	for _, pid := range pids {
		open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
		var was unix.Rlimit
		if err != nil || unix.Prlimit(pid, unix.RLIMIT_NOFILE, nil, &was) != nil {
			continue // it has ended
		}
		now := unix.Rlimit{Cur: uint64(len(open)), Max: was.Max}
		require.NoError(t, unix.Prlimit(pid, unix.RLIMIT_NOFILE, &now, nil))
		before[pid] = was
	}
	require.NotEmpty(t, before)
	<-time.After(d)
	for pid, was := range before {
		unix.Prlimit(pid, unix.RLIMIT_NOFILE, &was, nil) //nolint:errcheck // it may have ended
	}
}

// supervised is a program that is restarted whenever it ends, until the end of the test.
type supervised struct {
	mu    sync.Mutex
	cmd   *exec.Cmd
	ended bool
	done  chan struct{}
	start func() *exec.Cmd
}

// supervise starts a program, which always ends with this process.
func supervise(t *testing.T, start func() *exec.Cmd) *supervised {
	t.Helper()
	s := &supervised{start: start, done: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		defer close(s.done)
		runtime.LockOSThread() // the kernel kills the program when the thread that started it ends
		err := s.again()
		started <- err
		for err == nil {
			s.cmd.Wait() //nolint:errcheck // killed, mostly
			err = s.again()
		}
	}()
	require.NoError(t, <-started)
	t.Cleanup(func() {
		s.mu.Lock()
		s.ended = true
		s.cmd.Process.Signal(syscall.SIGCONT) //nolint:errcheck // it may have ended
		s.cmd.Process.Kill()                  //nolint:errcheck // it may have ended
		s.mu.Unlock()
		<-s.done
	})
	return s
}

func (s *supervised) again() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return errors.New("the test has ended")
	}
	cmd := s.start()
	cmd.SysProcAttr = dieWithParent()
	if err := cmd.Start(); err != nil {
		return err
	}
	s.cmd = cmd
	return nil
}

func (s *supervised) pid() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cmd.Process.Pid
}

// kill ends processes with SIGKILL.
func kill(pids []int) {
	for _, pid := range pids {
		syscall.Kill(pid, syscall.SIGKILL) //nolint:errcheck // it may have ended
	}
}

// postgresServer is the test's own Postgres, with one database.
type postgresServer struct {
	pid                         int // of the postmaster, the parent of all its processes
	url, socket, user, database string
}

func startPostgres(t *testing.T) postgresServer {
	t.Helper()
	server := postgrestest.StartServer(t, postgrestest.Memory())
	s := postgresServer{url: server.URL(t), socket: server.Socket()}
	config, err := pgx.ParseConfig(s.url)
	require.NoError(t, err)
	s.user, s.database = config.User, config.Database
	content, err := os.ReadFile(filepath.Join(filepath.Dir(s.socket), "data", "postmaster.pid"))
	require.NoError(t, err)
	first, _, _ := strings.Cut(string(content), "\n")
	s.pid, err = strconv.Atoi(first)
	require.NoError(t, err)
	return s
}
