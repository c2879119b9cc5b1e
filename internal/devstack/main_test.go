package devstack_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/overwinter-dev/overwinter/internal/devstack"
	"github.com/overwinter-dev/overwinter/internal/leaktest"
)

// waitLimit bounds every wait of a test. It is generous because the tests of all packages share the
// machine.
const waitLimit = 2 * time.Minute

// TestMain lets this program act as overwinter and overwinter-temporal, next to a real Postgres,
// and as a dev that is killed.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && !strings.HasPrefix(os.Args[1], "-") {
		if err := play(os.Args[1], os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	leaktest.Main(m)
}

// note appends an entry to the file in which simulated programs record their events, next to the
// program.
func note(line string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	file, err := os.OpenFile(filepath.Join(filepath.Dir(self), "notes"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(file, line)
	return errors.Join(err, file.Close())
}

func play(role string, args []string) error {
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer cancel()
	if role == "dev" { // args: DIR of data
		stack, err := devstack.New(config(args[0], os.Stdout))
		if err != nil {
			return err
		}
		return stack.Run(ctx)
	}

	var flags flag.FlagSet
	address := flags.String("address", "", "")
	healthAddress := flags.String("health-address", "", "")
	port := flags.String("port", "", "")
	for _, ignored := range []string{"data-dir", "ip", "ui-port", "db-file", "namespace", "log-level", "drain-timeout"} {
		flags.String(ignored, "", "")
	}
	for _, ignored := range []string{"exit-with-stdin", "no-versioning"} {
		flags.Bool(ignored, false, "")
	}
	if err := flags.Parse(args); err != nil {
		return err
	}
	switch {
	case *healthAddress != "":
		*address = *healthAddress
	case *port != "":
		*address = "127.0.0.1:" + *port
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", *address)
	if err != nil {
		return err
	}
	if err := note("start " + role); err != nil {
		return err
	}
	if role == "serve" {
		err = playTemporal(ctx, listener)
	} else {
		err = playHTTP(ctx, listener)
	}
	return errors.Join(err, note("stop "+role))
}

func playTemporal(ctx context.Context, listener net.Listener) error {
	server, healthy := grpc.NewServer(), health.NewServer()
	healthy.SetServingStatus("temporal.api.workflowservice.v1.WorkflowService", grpc_health_v1.HealthCheckResponse_SERVING)
	grpc_health_v1.RegisterHealthServer(server, healthy)
	context.AfterFunc(ctx, server.Stop)
	return server.Serve(listener)
}

// playHTTP responds that it is ready, and with its environment.
func playHTTP(ctx context.Context, listener net.Listener) error {
	mux := http.NewServeMux()
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"status":"ready","checks":{"sandbox":{"driver":"modal","isolation":"namespaces"}}}`)
	})
	mux.HandleFunc("/environment", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(os.Environ())
	})
	server := &http.Server{Handler: mux, ReadHeaderTimeout: waitLimit}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// config returns a stack of simulated programs on free ports, with a table as its migration.
func config(dataDir string, output io.Writer) devstack.Config {
	self, err := os.Executable()
	if err != nil {
		panic(err)
	}
	return devstack.Config{
		DataDir:        dataDir,
		Executable:     self,
		TemporalBinary: self,
		APIAddress:     "127.0.0.1:0",
		Environment:    append(os.Environ(), "OF_THE_USER=yes", "HTTPS_PROXY=http://proxy.invalid:3128", "OVERWINTER_MAX_TURNS=7"),
		Output:         output,
		Migrate: func(ctx context.Context, url string) error {
			return execute(ctx, url, `CREATE TABLE IF NOT EXISTS kept (n int)`)
		},
	}
}

// execute runs a statement.
func execute(ctx context.Context, url, statement string) error {
	connection, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	_, err = connection.Exec(ctx, statement)
	return errors.Join(err, connection.Close(ctx))
}

// query returns the one value of a statement.
func query[T any](ctx context.Context, url, statement string) (value T, err error) {
	connection, err := pgx.Connect(ctx, url)
	if err != nil {
		return value, err
	}
	defer func() { err = errors.Join(err, connection.Close(ctx)) }()
	return value, connection.QueryRow(ctx, statement).Scan(&value)
}

// buffer is a bytes.Buffer for several goroutines.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// bundle is a directory with a copy of this program, so that its processes and notes are separate.
type bundle struct {
	t       *testing.T
	dir     string
	dataDir string
	program string
	output  *buffer
}

func setup(t *testing.T) bundle {
	t.Helper()
	dir := t.TempDir()
	// As root, Postgres runs as another user, which must be able to traverse the directory.
	require.NoError(t, os.Chmod(filepath.Dir(dir), 0o755))
	require.NoError(t, os.Chmod(dir, 0o755))
	self, err := os.Executable()
	require.NoError(t, err)
	b := bundle{t: t, dir: dir, dataDir: filepath.Join(dir, "data"), program: filepath.Join(dir, "program"), output: &buffer{}}
	if os.Link(self, b.program) != nil { // another file system
		content, err := os.ReadFile(self)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(b.program, content, 0o755))
	}
	// Runs before the directory is removed.
	t.Cleanup(func() {
		require.Eventually(t, func() bool { return len(b.processes()) == 0 }, waitLimit, 20*time.Millisecond, "processes are left")
	})
	return b
}

func (b bundle) config() devstack.Config {
	c := config(b.dataDir, b.output)
	c.Executable, c.TemporalBinary = b.program, b.program
	return c
}

// running is a stack that runs.
type running struct {
	*devstack.Stack
	b     bundle
	stop  context.CancelFunc
	ended chan error // one value: what Run returned
}

// run starts a stack and waits until it is ready.
func (b bundle) run(c devstack.Config) *running {
	b.t.Helper()
	stack, err := devstack.New(c)
	require.NoError(b.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{Stack: stack, b: b, stop: cancel, ended: make(chan error, 1)}
	go func() { r.ended <- stack.Run(ctx) }()
	b.t.Cleanup(func() {
		cancel()
		stack.Kill()
	})
	select {
	case <-stack.Ready():
	case err := <-r.ended:
		require.NoError(b.t, err, "Run ended at the start")
	case <-time.After(waitLimit):
		require.Fail(b.t, "not ready in time")
	}
	return r
}

// end stops the stack and requires that it returns no error.
func (r *running) end() {
	r.b.t.Helper()
	r.stop()
	select {
	case err := <-r.ended:
		require.NoError(r.b.t, err)
	case <-time.After(waitLimit):
		require.Fail(r.b.t, "not stopped in time")
	}
}

// url returns the URL of the stack's database.
func (b bundle) url() string {
	b.t.Helper()
	content, err := os.ReadFile(filepath.Join(b.dataDir, "database-url"))
	require.NoError(b.t, err)
	return strings.TrimSpace(string(content))
}

// pid returns the process id of a child from the data directory; 0 if there is none.
func (b bundle) pid(name string) int {
	b.t.Helper()
	content, err := os.ReadFile(filepath.Join(b.dataDir, "run", name+".json"))
	if errors.Is(err, os.ErrNotExist) {
		return 0
	}
	require.NoError(b.t, err)
	var r struct{ PID int }
	require.NoError(b.t, json.Unmarshal(content, &r))
	return r.PID
}

// processes lists the processes that run this bundle's program or work in its directory, from
// /proc.
func (b bundle) processes() []int {
	var found []int
	entries, _ := os.ReadDir("/proc") // tests that expect processes fail if none is found
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		executable, _ := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
		workDir, _ := os.Readlink(fmt.Sprintf("/proc/%d/cwd", pid))
		if strings.HasPrefix(executable, b.dir) || strings.HasPrefix(workDir, b.dir) {
			found = append(found, pid)
		}
	}
	return found
}

// notes returns the notes of the simulated programs.
func (b bundle) notes() []string {
	content, err := os.ReadFile(filepath.Join(b.dir, "notes"))
	if err != nil {
		return nil
	}
	return strings.Split(strings.TrimSpace(string(content)), "\n")
}

func (b bundle) eventually(condition func() bool, what string) {
	b.t.Helper()
	require.Eventually(b.t, condition, waitLimit, 10*time.Millisecond, what)
}
