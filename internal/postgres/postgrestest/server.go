package postgrestest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/overwinter-dev/overwinter/internal/postgres"
)

const (
	superuser    = "overwinter"
	template     = "overwinter_template"
	startTimeout = 2 * time.Minute
)

// keeper starts the server and stops it when standard input, the pipe, closes.
// $1 is the server's directory, the rest is the server's command line.
const keeper = `
dir=$1; shift
"$@" </dev/null >"$dir/log" 2>&1 &
server=$!
while read -r _; do :; done
kill -QUIT "$server" 2>/dev/null
wait "$server"
rm -rf "$dir"
`

// server is the Postgres server of this test process.
type server struct {
	dir   string
	alive *os.File // the write end of the keeper's pipe; closed only by the end of the process
	next  atomic.Int64
	// clone serializes CREATE DATABASE: only one connection may use the template at a time.
	clone sync.Mutex

	mu   sync.Mutex
	idle []*pgx.Conn // to database postgres, for exec
}

// shared is started once and then lives as long as the process, like the server.
var shared = sync.OnceValues(startServer)

func startServer() (*server, error) { return startServerIn(Memory()) }

// startServerIn starts a server in a new directory under parent; "" for the system's temporary
// directory.
func startServerIn(parent string) (*server, error) {
	bin, err := binDir()
	if err != nil {
		return nil, err
	}
	credential, err := unprivileged()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(parent, "owpg")
	if err != nil {
		return nil, fmt.Errorf("directory for Postgres: %w", err)
	}
	s := &server{dir: dir}
	if err := s.start(bin, credential); err != nil {
		if s.alive != nil {
			s.alive.Close() // the keeper removes the directory
		} else {
			os.RemoveAll(dir)
		}
		return nil, err
	}
	return s, nil
}

func (s *server) start(bin string, credential *syscall.Credential) error {
	if credential != nil {
		if err := os.Chown(s.dir, int(credential.Uid), int(credential.Gid)); err != nil {
			return fmt.Errorf("give %s to Postgres's user: %w", s.dir, err)
		}
	}
	data := filepath.Join(s.dir, "data")
	initdb := exec.CommandContext(context.Background(), filepath.Join(bin, "initdb"), "-D", data, "-U", superuser,
		"-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync", "--no-instructions")
	initdb.Dir = s.dir
	initdb.Env = environment()
	initdb.SysProcAttr = &syscall.SysProcAttr{Credential: credential}
	if out, err := initdb.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w: %s", err, bytes.TrimSpace(out))
	}

	read, write, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("pipe to Postgres's keeper: %w", err)
	}
	defer read.Close()
	cmd := exec.CommandContext(context.Background(), "/bin/sh", "-c", keeper, "sh", s.dir,
		filepath.Join(bin, "postgres"), "-D", data, "-k", s.dir,
		"-c", "listen_addresses=", "-c", "max_connections=300", "-c", "shared_buffers=64MB",
		"-c", "fsync=off", "-c", "full_page_writes=off", "-c", "synchronous_commit=on",
		"-c", "autovacuum=off", "-c", "max_wal_size=1GB")
	cmd.Dir = s.dir
	cmd.Env = environment()
	cmd.Stdin = read
	// A separate process session, so that Ctrl-C reaches the test process first.
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: credential, Setsid: true}
	if err := cmd.Start(); err != nil {
		write.Close()
		return fmt.Errorf("start Postgres: %w", err)
	}
	s.alive = write

	ctx, cancel := context.WithTimeoutCause(context.Background(), startTimeout, errors.New("no answer from Postgres in time"))
	defer cancel()
	if err := s.awaitReady(ctx); err != nil {
		log, _ := os.ReadFile(filepath.Join(s.dir, "log")) // the log may not exist
		return fmt.Errorf("%w; its log: %s", err, bytes.TrimSpace(log))
	}
	if err := s.exec(ctx, "CREATE DATABASE "+template); err != nil {
		return fmt.Errorf("create the template database: %w", err)
	}
	db, err := postgres.Open(ctx, s.url(template), postgres.Options{MaxConns: 1})
	if err != nil {
		return fmt.Errorf("open the template database: %w", err)
	}
	defer db.Close()
	if err := db.Migrate(ctx); err != nil {
		return fmt.Errorf("migrate the template database: %w", err)
	}
	return nil
}

func (s *server) awaitReady(ctx context.Context) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := s.exec(ctx, "SELECT 1")
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		case <-tick.C:
		}
	}
}

// createDatabase clones the template and returns the new database's name. Copying the files takes
// half the processor time of copying the blocks through the write-ahead log, which is the default.
func (s *server) createDatabase(ctx context.Context, from string) (string, error) {
	s.clone.Lock()
	defer s.clone.Unlock()
	name := "test_" + strconv.FormatInt(s.next.Add(1), 10)
	return name, s.exec(ctx, fmt.Sprintf("CREATE DATABASE %s TEMPLATE %s STRATEGY FILE_COPY", name, from))
}

func (s *server) dropDatabase(ctx context.Context, name string) error {
	return s.exec(ctx, fmt.Sprintf("DROP DATABASE IF EXISTS %s WITH (FORCE)", name))
}

// exec executes a statement in database postgres. Its connections are used again, since a connection
// costs as much as the creation of a database.
func (s *server) exec(ctx context.Context, sql string) error {
	conn, err := s.connection(ctx)
	if err != nil {
		return err
	}
	if _, err := conn.Exec(ctx, sql); err != nil {
		return errors.Join(err, conn.Close(context.WithoutCancel(ctx)))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.idle = append(s.idle, conn)
	return nil
}

// connection returns an idle connection that a test has not terminated, or a new one.
func (s *server) connection(ctx context.Context) (*pgx.Conn, error) {
	for {
		s.mu.Lock()
		last := len(s.idle) - 1
		if last < 0 {
			s.mu.Unlock()
			return pgx.Connect(ctx, s.url("postgres"))
		}
		conn := s.idle[last]
		s.idle = s.idle[:last]
		s.mu.Unlock()
		if conn.Ping(ctx) == nil {
			return conn, nil
		}
		_ = conn.Close(context.WithoutCancel(ctx)) // it is broken
	}
}

func (s *server) url(database string) string {
	query := url.Values{"host": {s.dir}, "user": {superuser}, "sslmode": {"disable"}}
	return "postgres:///" + database + "?" + query.Encode()
}

// unprivileged returns the user that runs the server; nil for the current user.
func unprivileged() (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err := strconv.ParseUint(u.Uid, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("user %s: %w", name, err)
		}
		gid, err := strconv.ParseUint(u.Gid, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("user %s: %w", name, err)
		}
		return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
	}
	return nil, errors.New("postgres refuses to run as root, and there is no user postgres or nobody to run it as")
}

// environment returns our environment without variables that Postgres's programs read.
func environment() []string {
	return []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C", "TZ=UTC"}
}
