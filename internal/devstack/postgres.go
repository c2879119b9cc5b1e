package devstack

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/overwinter-dev/overwinter/internal/devstack/child"
)

// postgresServer is the Postgres that the stack runs: on loopback and a Unix socket, a superuser for the
// supervisor and a role for the rest, each with a password.
type postgresServer struct {
	install   pgInstall
	user      pgUser
	directory string
	exists    bool // an earlier run created the directory
	sockets   bool // its file system can contain sockets
	port      int
	password  string // of the role
	admin     string // the superuser's password
	config    Config
}

// newPostgresServer selects the installed Postgres to run, and its user. Its errors are messages
// for the user.
func newPostgresServer(ctx context.Context, c Config, dir *dataDir, port int) (*postgresServer, error) {
	s := &postgresServer{directory: dir.join("postgres"), port: port, sockets: takesSockets(ctx, dir.path), config: c}
	major, err := clusterVersion(s.directory)
	if err != nil {
		return nil, err
	}
	s.exists = major != 0
	installs, err := findPostgres(ctx)
	if err != nil {
		return nil, err
	}
	if s.install, err = choosePostgres(installs, major, s.directory); err != nil {
		return nil, err
	}
	if s.user, err = choosePGUser(s.directory); err != nil {
		return nil, err
	}
	if err := s.allowTraversal(dir); err != nil {
		return nil, err
	}
	if s.admin, err = dir.password("postgres.password"); err != nil {
		return nil, err
	}
	if s.password, err = dir.password("postgres-app.password"); err != nil {
		return nil, err
	}
	return s, nil
}

// prepare creates the data directory at the first run; later runs end a server that still runs on
// it.
func (s *postgresServer) prepare(ctx context.Context) error {
	if !s.exists {
		if err := s.create(ctx); err != nil {
			return fmt.Errorf("make the Postgres data directory: %w", err)
		}
		return nil
	}
	if err := s.endLeftover(ctx); err != nil {
		return fmt.Errorf("end the Postgres of an earlier run: %w", err)
	}
	// A killed server leaves its socket, and the next one may have another port.
	files, err := os.ReadDir(s.directory)
	for _, f := range files {
		if strings.HasPrefix(f.Name(), socketPrefix) {
			err = errors.Join(err, os.Remove(filepath.Join(s.directory, f.Name())))
		}
	}
	if err != nil {
		return fmt.Errorf("delete the socket of an earlier Postgres: %w", err)
	}
	return nil
}

// clusterVersion returns the major version that created a data directory, 0 if there is none.
func clusterVersion(directory string) (int, error) {
	content, err := os.ReadFile(directory + "/PG_VERSION")
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Stat(directory); errors.Is(err, fs.ErrNotExist) {
			return 0, nil
		}
		return 0, fmt.Errorf("%s is not a Postgres data directory (it has no PG_VERSION): move it away to start from scratch", directory)
	}
	if err != nil {
		return 0, fmt.Errorf("read the version of the Postgres data directory: %w", err)
	}
	major, err := strconv.Atoi(strings.TrimSpace(string(content)))
	if err != nil || major == 0 {
		return 0, fmt.Errorf("%s is not a Postgres data directory (its PG_VERSION is %q): move it away to start from scratch", directory, content)
	}
	return major, nil
}

// allowTraversal makes sure that Postgres's user can reach the data directory. It only makes the
// stack's own directory traversable; everything else in it is private.
func (s *postgresServer) allowTraversal(dir *dataDir) error {
	if s.user.credential == nil {
		return nil
	}
	info, err := os.Stat(dir.path)
	if err != nil {
		return fmt.Errorf("look at data directory: %w", err)
	}
	if mode := info.Mode().Perm(); mode&0o011 != 0o011 {
		if err := os.Chmod(dir.path, mode|0o011); err != nil {
			return fmt.Errorf("let %s through the data directory: %w", s.user.name, err)
		}
	}
	return s.user.checkReach(s.directory)
}

// create runs initdb in a temporary directory and moves the result into place, so that a killed
// first start leaves nothing that looks like a data directory.
func (s *postgresServer) create(ctx context.Context) error {
	part := s.directory + ".part"
	if err := os.RemoveAll(part); err != nil {
		return fmt.Errorf("clear the remains of an earlier start: %w", err)
	}
	if err := os.Mkdir(part, 0o700); err != nil {
		return err
	}
	if err := s.user.own(part); err != nil {
		return err
	}
	initdb := exec.CommandContext(ctx, s.install.program("initdb"),
		"--pgdata="+part, "--username="+adminName, "--pwfile=/dev/stdin", "--auth=scram-sha-256",
		"--encoding=UTF8", "--locale=C")
	initdb.Env, initdb.Dir = s.config.plainEnvironment(), "/"
	initdb.SysProcAttr = &syscall.SysProcAttr{Credential: s.user.credential}
	read, err := s.passwordPipe()
	if err != nil {
		return fmt.Errorf("make password pipe: %w", err)
	}
	defer func() { _ = read.Close() }() // read only
	initdb.Stdin = read
	output, err := initdb.CombinedOutput()
	if err != nil {
		return fmt.Errorf("initdb: %w: %s", err, bytes.TrimSpace(output))
	}
	if err := os.Rename(part, s.directory); err != nil {
		return fmt.Errorf("move it into place: %w", err)
	}
	return nil
}

// passwordPipe returns a pipe that contains only the superuser's password. It belongs to Postgres's
// user, because initdb reopens its stdin by name.
func (s *postgresServer) passwordPipe() (_ *os.File, err error) {
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	_, err = write.WriteString(s.admin + "\n") // fits into any pipe
	err = errors.Join(err, write.Close())
	if err == nil && s.user.credential != nil {
		err = read.Chown(int(s.user.credential.Uid), int(s.user.credential.Gid))
	}
	if err != nil {
		return nil, errors.Join(err, read.Close())
	}
	return read, nil
}

// endLeftover ends a server that still runs on the data directory although its supervisor is dead.
func (s *postgresServer) endLeftover(ctx context.Context) error {
	content, err := os.ReadFile(s.directory + "/postmaster.pid")
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	first, _, _ := strings.Cut(string(content), "\n")
	pid, _ := strconv.Atoi(first)
	if pid <= 1 {
		return nil // Postgres itself reports the problem with the file
	}
	return child.EndProcess(ctx, pid, syscall.SIGQUIT, func() bool {
		// Only the server has the data directory as its working directory.
		workDir, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", pid))
		return err == nil && workDir == s.directory
	})
}

// spec runs the server.
func (s *postgresServer) spec() child.Spec {
	return child.Spec{
		Name: "postgres",
		Command: child.Command{
			Path: s.install.program("postgres"),
			Args: []string{
				"-D", s.directory,
				"-c", "listen_addresses=" + loopback,
				"-c", "port=" + strconv.Itoa(s.port),
				"-c", "unix_socket_directories=" + s.socketDir(),
				"-c", "unix_socket_permissions=0700",
				"-c", "max_connections=200",
				// Many tables are analyzed after 50 changes. Until then, statements are planned for empty ones.
				"-c", "autovacuum_naptime=15s",
				"-c", "logging_collector=off",
				"-c", "log_destination=stderr",
				"-c", "log_line_prefix=%m [%p] ",
			},
			Env:        s.config.plainEnvironment(),
			Dir:        s.directory,
			Credential: s.user.credential,
			// Immediate shutdown: the server ends its own processes too, and the next start
			// recovers from the write-ahead log.
			DeathSignal: syscall.SIGQUIT,
		},
		Ready:       s.ready,
		StopSignal:  syscall.SIGINT, // fast shutdown: connections are closed, data is flushed
		StopTimeout: 20 * time.Second,
		Severity:    postgresSeverity,
		EchoLevel:   slog.LevelError,
	}
}

const (
	// socketPrefix is followed by the port in the name of a server's socket.
	socketPrefix = ".s.PGSQL."
	// maxSocketPath is the length of the longest path of a socket that every system accepts.
	maxSocketPath = 103
)

// socketDir returns the directory of the server's socket; "" if its path cannot be used for one. Worker and api connect
// through it, because a round trip takes two thirds of the processor time that it takes by TCP.
func (s *postgresServer) socketDir() string {
	if !s.sockets || len(s.socket()) > maxSocketPath || strings.ContainsAny(s.directory, "\",") { // a list, in which names can be quoted
		return ""
	}
	return s.directory
}

// takesSockets reports whether sockets can be created in a directory. Postgres does not start if it can create none.
func takesSockets(ctx context.Context, dir string) bool {
	name := filepath.Join(dir, "postgres.probe")
	_ = os.Remove(name) // of a killed dev
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "unix", name)
	if err != nil {
		return false // or its name is too long, as that of the server's socket is then
	}
	return listener.Close() == nil
}

func (s *postgresServer) socket() string {
	return filepath.Join(s.directory, socketPrefix+strconv.Itoa(s.port))
}

// url returns the URL of the database by TCP, for programs outside the stack.
func (s *postgresServer) url() string { return s.urlOf(roleName, s.password, databaseName) }

// socketURL returns the URL of the database for worker and api.
func (s *postgresServer) socketURL() string {
	dir := s.socketDir()
	if dir == "" {
		return s.url()
	}
	query := url.Values{
		"host": {dir}, "port": {strconv.Itoa(s.port)}, "require_auth": {"scram-sha-256"}, "sslmode": {"disable"},
	}
	u := url.URL{
		Scheme: "postgres", User: url.UserPassword(roleName, s.password), Path: "/" + databaseName,
		RawQuery: strings.ReplaceAll(query.Encode(), "+", "%20"), // a + is no space in a URL of Postgres
	}
	return u.String()
}

// adminURL returns the URL of a database for the supervisor.
func (s *postgresServer) adminURL(database string) string {
	return s.urlOf(adminName, s.admin, database)
}

func (s *postgresServer) urlOf(role, password, database string) string {
	u := url.URL{
		Scheme: "postgres",
		User:   url.UserPassword(role, password),
		Host:   loopbackAddress(s.port),
		Path:   "/" + database,
		// A program that has taken the port in the meantime must not get the password itself.
		RawQuery: "require_auth=scram-sha-256&sslmode=disable",
	}
	return u.String()
}

// ready connects to the database that every server has.
func (s *postgresServer) ready(ctx context.Context) error {
	connection, err := pgx.Connect(ctx, s.adminURL("postgres"))
	if err != nil {
		return err
	}
	return connection.Close(ctx)
}

// postgresSeverity parses the severity of a line of the server's log. Clients report their failed
// statements themselves.
func postgresSeverity(line []byte) slog.Level {
	switch {
	case bytes.Contains(line, []byte("] FATAL: ")), bytes.Contains(line, []byte("] PANIC: ")):
		return slog.LevelError
	case bytes.Contains(line, []byte("] WARNING: ")), bytes.Contains(line, []byte("] ERROR: ")):
		return slog.LevelWarn
	default:
		return slog.LevelInfo
	}
}
