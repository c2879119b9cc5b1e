package postgrestest

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// Server is a Postgres server for a single test, for example one that freezes it or fills its disk.
type Server struct{ server *server }

// StartServer starts a server that stores everything under directory and stops when the test ends.
// The path must be short enough for a socket, and accessible to other users if the tests run as
// root.
func StartServer(t testing.TB, directory string) *Server {
	t.Helper()
	s, err := startServerIn(directory)
	if err != nil {
		t.Fatalf("start a Postgres server: %v", err)
	}
	t.Cleanup(func() { s.alive.Close() }) // its keeper stops it and removes the directory
	return &Server{server: s}
}

// URL returns the address of a migrated and empty database.
func (s *Server) URL(t testing.TB) string {
	t.Helper()
	name, err := s.server.createDatabase(t.Context(), template)
	if err != nil {
		t.Fatalf("create the test's database: %v", err)
	}
	return s.server.url(name)
}

// Socket is the path of the server's Unix socket.
func (s *Server) Socket() string { return filepath.Join(s.server.dir, ".s.PGSQL.5432") }

// Freeze suspends every process of the server until thaw is called, or until the test ends.
// Meanwhile the server neither closes nor refuses connections, and does not respond.
func (s *Server) Freeze(t testing.TB) (thaw func()) {
	t.Helper()
	pids, err := s.processes()
	if err != nil {
		t.Fatalf("find the server's processes: %v", err)
	}
	signal := func(sig syscall.Signal) {
		for _, pid := range pids {
			syscall.Kill(pid, sig) //nolint:errcheck // the process may have ended
		}
	}
	signal(syscall.SIGSTOP)
	t.Cleanup(func() { signal(syscall.SIGCONT) })
	return func() { signal(syscall.SIGCONT) }
}

// processes returns the process ids of the postmaster and its children.
func (s *Server) processes() ([]int, error) {
	file, err := os.ReadFile(filepath.Join(s.server.dir, "data", "postmaster.pid"))
	if err != nil {
		return nil, err
	}
	first, _, _ := strings.Cut(string(file), "\n")
	postmaster, err := strconv.Atoi(first)
	if err != nil {
		return nil, fmt.Errorf("postmaster.pid: %w", err)
	}
	pids := []int{postmaster}
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return nil, err
	}
	for _, path := range stats {
		stat, err := os.ReadFile(path)
		if err != nil {
			continue // the process has ended
		}
		// PID (NAME) STATE PARENT …; the name may contain any character.
		fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
		if len(fields) > 1 && fields[1] == first {
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			if err != nil {
				return nil, err
			}
			pids = append(pids, pid)
		}
	}
	return pids, nil
}
