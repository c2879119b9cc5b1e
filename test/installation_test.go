package test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/porttest"
)

// installation is a system whose apis and workers the test starts and stops one by one, like an
// operator who replaces them. Each may be of another release.
//
//	clients ──▶ front ──▶ apis ──▶ Postgres, Temporal ◀── workers ──▶ local Modal
type installation struct {
	*rig
	env []string

	mu   sync.Mutex
	apis []string // addresses to which the front connects
	next int
}

// startInstallation starts everything but apis and workers. The schema is empty.
func startInstallation(t *testing.T) *installation {
	t.Helper()
	i := &installation{rig: &rig{postgres: startPostgres(t), hits: newHits(t)}}
	i.database = newProxy(t, i.dialPostgres)
	i.temporal = startTemporal(t)
	front := newProxy(t, i.dialAPI)
	dir := stackDir(t)
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "logs"), 0o755))
	i.stack = &stack{dir: dir, api: front.address, engine: i.temporal.address, out: &safeBuffer{}}
	t.Cleanup(func() {
		if t.Failed() {
			i.dump(t)
		}
	})
	modal := fmt.Sprintf("127.0.0.1:%d", porttest.Free(t))
	const token, tokenSecret = "local", "the secret of a test's local Modal"
	i.env = append(os.Environ(),
		"OVERWINTER_DATABASE_URL="+i.databaseURL(i.database),
		"OVERWINTER_SECRET_KEY=MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=",
		"OVERWINTER_ALLOW_LOOPBACK_WITHOUT_KEY=true",
		"OVERWINTER_DATABASE_ALLOW_NEWER_SCHEMA=true",
		"OVERWINTER_LOG_FORMAT=json",
		"TEMPORAL_ADDRESS="+i.temporal.address, "TEMPORAL_NAMESPACE=default",
		"MODAL_SERVER_URL=http://"+modal, "MODAL_TOKEN_ID="+token, "MODAL_TOKEN_SECRET="+tokenSecret,
		"OVERWINTER_LOCALMODAL_TOKEN_ID="+token, "OVERWINTER_LOCALMODAL_TOKEN_SECRET="+tokenSecret,
	)
	provider := i.begin(t, "local-modal", program(t, "overwinter"), "local-modal", "--address", modal, "--data-dir", filepath.Join(dir, "modal"),
		"--sandbox-host-ports", "1024-65535")
	t.Cleanup(func() { provider.end(syscall.SIGTERM) }) // it ends its sandboxes
	return i
}

// dialAPI connects to the apis in turn, as a load balancer does.
func (i *installation) dialAPI() (net.Conn, error) {
	i.mu.Lock()
	if len(i.apis) == 0 {
		i.mu.Unlock()
		return nil, errors.New("no api is there")
	}
	i.next++
	address := i.apis[i.next%len(i.apis)]
	i.mu.Unlock()
	return net.Dial("tcp", address)
}

// server is one program of an installation.
type server struct {
	name    string
	address string
	pid     int
	ended   chan struct{}
	err     error // set once the program has ended
}

// begin starts a program. It ends at the end of the test at the latest.
func (i *installation) begin(t *testing.T, name, path string, args ...string) *server {
	t.Helper()
	logs, err := os.Create(filepath.Join(i.dir, "logs", name+".log"))
	require.NoError(t, err)
	cmd := exec.Command(path, args...)
	cmd.Env, cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = i.env, logs, logs, dieWithParent()
	s := &server{name: name, ended: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		defer close(s.ended)
		defer logs.Close()
		runtime.LockOSThread() // the kernel kills the program when the thread that started it ends
		err := cmd.Start()
		started <- err
		if err == nil {
			s.err = cmd.Wait()
		}
	}()
	require.NoError(t, <-started)
	s.pid = cmd.Process.Pid
	t.Cleanup(func() { s.end(syscall.SIGKILL) })
	return s
}

// end sends a signal and waits for the end.
func (s *server) end(with syscall.Signal) {
	select {
	case <-s.ended:
		return
	default:
	}
	syscall.Kill(s.pid, with) //nolint:errcheck // it may end by itself
	select {
	case <-s.ended:
	case <-time.After(2 * time.Minute):
		syscall.Kill(s.pid, syscall.SIGKILL) //nolint:errcheck // it may have ended
		<-s.ended
	}
}

// stop ends a program as an operator does, gracefully.
func (s *server) stop(t *testing.T) {
	t.Helper()
	s.end(syscall.SIGTERM)
	require.NoError(t, s.err, "%s did not end cleanly", s.name)
}

// kill ends a program with SIGKILL.
func (s *server) kill() { s.end(syscall.SIGKILL) }

// ready waits until a program serves.
func (s *server) ready(t *testing.T) {
	t.Helper()
	eventually(t, 2*time.Minute, s.name+" is ready", func() error {
		select {
		case <-s.ended:
			t.Fatalf("%s has ended: %v", s.name, s.err)
		default:
		}
		return isReady("http://" + s.address + "/readyz")
	})
}

// migrate applies the migrations of a release.
func (i *installation) migrate(t *testing.T, path string) {
	t.Helper()
	cmd := exec.Command(path, "migrate", "up")
	cmd.Env = i.env
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// startAPI starts an api and makes it reachable for clients.
func (i *installation) startAPI(t *testing.T, name, path string) *server {
	t.Helper()
	address := fmt.Sprintf("127.0.0.1:%d", porttest.Free(t))
	s := i.begin(t, name, path, "api", "--address", address)
	s.address = address
	s.ready(t)
	i.mu.Lock()
	defer i.mu.Unlock()
	i.apis = append(i.apis, address)
	return s
}

// stopAPI removes an api from the front, and stops it.
func (i *installation) stopAPI(t *testing.T, s *server) {
	t.Helper()
	i.mu.Lock()
	i.apis = slices.DeleteFunc(i.apis, func(a string) bool { return a == s.address })
	i.mu.Unlock()
	s.stop(t)
}

// startWorker starts a worker and returns once it polls.
func (i *installation) startWorker(t *testing.T, name, path string, args ...string) *server {
	t.Helper()
	address := fmt.Sprintf("127.0.0.1:%d", porttest.Free(t))
	s := i.begin(t, name, path, append([]string{"worker", "--health-address", address}, args...)...)
	s.address = address
	s.ready(t)
	return s
}

// id returns the id of the installation, which is in the names of its queues and of its deployment.
func (i *installation) id(t *testing.T) (id string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), i.postgres.url)
	require.NoError(t, err)
	defer conn.Close(t.Context())
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT id FROM installation").Scan(&id))
	return id
}

// gate is a line of a demo script that ends once the gate is opened.
func (h *hits) gate(name string) string {
	h.answer(name, false)
	return fmt.Sprintf("$ until curl -sf --max-time 10 %s/%s; do sleep 1; done", insideURL(h.server.URL), name)
}

func (h *hits) open(name string) { h.answer(name, true) }

// unreachable matches the output of go if it cannot download a module.
var unreachable = regexp.MustCompile(`(?m)(Get "https?://|reading https?://|dial tcp|module lookup disabled)`)

// releasePrograms builds the programs of another commit of this repository, once, in a cache of the
// user. Without the commit, as in a shallow clone of an unreachable repository, or without its
// modules, the test is skipped unless they are required.
func releasePrograms(t *testing.T, commit string, required bool) (path string) {
	t.Helper()
	missing := t.Skipf
	if required {
		missing = t.Fatalf
	}
	cache, err := os.UserCacheDir()
	require.NoError(t, err)
	dir := filepath.Join(cache, "overwinter-test", "release-"+commit)
	path = filepath.Join(dir, "overwinter")
	if _, err := os.Stat(path); err == nil {
		return path
	}
	run := func(name string, args ...string) (string, error) {
		cmd := exec.Command(name, args...)
		cmd.Env = append(os.Environ(), "GOFLAGS=-buildvcs=false")
		if args[len(args)-1] == "./cmd/overwinter-runner" {
			cmd.Env = append(cmd.Env, "CGO_ENABLED=0")
		}
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	if _, err := run("git", "cat-file", "-e", commit+"^{commit}"); err != nil {
		if out, err := run("git", "fetch", "--quiet", "--depth", "1", "origin", commit); err != nil {
			missing("the release before is not in this clone: git fetch origin %s: %v\n%s", commit, err, out)
		}
	}
	source := t.TempDir()
	archive := filepath.Join(source, "source.tar")
	out, err := run("git", "-C", "..", "archive", "--output", archive, commit)
	require.NoError(t, err, out)
	out, err = run("tar", "-x", "-f", archive, "-C", source)
	require.NoError(t, err, out)
	require.NoError(t, os.MkdirAll(dir, 0o755))
	for _, name := range []string{"overwinter-runner", "overwinter"} { // the last one marks that all are built
		staged := filepath.Join(dir, name+".new")
		out, err := run("go", "build", "-C", source, "-ldflags", "-s -w -X main.commit="+commit, "-o", staged, "./cmd/"+name)
		if err != nil && unreachable.MatchString(out) {
			missing("the modules of the release before cannot be downloaded: %v\n%s", err, out)
		}
		require.NoError(t, err, out)
		require.NoError(t, os.Rename(staged, filepath.Join(dir, name)))
	}
	return path
}
