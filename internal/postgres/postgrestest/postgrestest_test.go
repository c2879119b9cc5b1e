package postgrestest_test

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/postgres"
	"github.com/overwinter-dev/overwinter/internal/postgres/postgrestest"
	"github.com/overwinter-dev/overwinter/internal/session"
)

func TestEachTestHasItsOwnDatabase(t *testing.T) {
	t.Parallel()
	one, other := postgrestest.New(t), postgrestest.New(t)
	s, _, err := one.SessionCreate(t.Context(), session.Session{ID: session.NewID(session.SessionPrefix), Agent: "demo"}, nil, session.Idempotency{})
	require.NoError(t, err)
	_, err = other.SessionGet(t.Context(), s.ID)
	require.Equal(t, failure.NoSession, failure.CodeOf(err))
}

func TestDatabaseIsDroppedAfterTest(t *testing.T) { //nolint:tparallel // the subtest must have ended
	t.Parallel()
	var url string
	t.Run("inner", func(t *testing.T) {
		url = postgrestest.URL(t)
		require.NoError(t, postgrestest.Open(t, url).Ping(t.Context()))
	})
	db, err := postgres.Open(t.Context(), url, postgres.Options{})
	require.NoError(t, err)
	defer db.Close()
	require.Error(t, db.Ping(t.Context()))
}

// TestDatabasesAreCreatedAfterConnectionsAreTerminated terminates the connections that create databases, as tests
// of outages do.
func TestDatabasesAreCreatedAfterConnectionsAreTerminated(t *testing.T) {
	t.Parallel()
	server := postgrestest.StartServer(t, postgrestest.Memory())
	conn, err := pgx.Connect(t.Context(), server.URL(t))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conn.Close(context.WithoutCancel(t.Context()))) })
	var terminated int
	require.NoError(t, conn.QueryRow(t.Context(), `SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
		WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()`).Scan(&terminated))
	require.Positive(t, terminated)
	require.NoError(t, postgrestest.Open(t, server.URL(t)).Ping(t.Context()))
}

// TestHelperThatIsKilled is the process that the next test kills.
func TestHelperThatIsKilled(t *testing.T) { //nolint:paralleltest // a separate process
	if os.Getenv("POSTGRESTEST_HELPER") == "" {
		t.Skip("it is run by TestServerEndsWithKilledProcess")
	}
	postgrestest.New(t)
	os.Stdout.WriteString("up\n")
	select {}
}

func TestServerEndsWithKilledProcess(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "owpgkill") //nolint:usetesting // short enough for a socket's path, and as accessible as the system's directory
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	require.NoError(t, os.Chmod(dir, 0o777|os.ModeSticky))
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(self, "-test.run=^TestHelperThatIsKilled$", "-test.v")
	cmd.Env = append(os.Environ(), "POSTGRESTEST_HELPER=1", "TMPDIR="+dir)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	lines := bufio.NewScanner(out)
	for lines.Scan() && lines.Text() != "up" {
	}
	servers, err := filepath.Glob(filepath.Join(dir, "owpg*"))
	require.NoError(t, err)
	require.Len(t, servers, 1)
	require.FileExists(t, filepath.Join(servers[0], "data", "postmaster.pid"))
	require.NoError(t, cmd.Process.Kill())
	cmd.Wait() //nolint:errcheck // it was killed
	require.Eventually(t, func() bool {
		_, err := os.Stat(servers[0])
		return os.IsNotExist(err)
	}, 2*time.Minute, 20*time.Millisecond, "the server's directory is removed once the server has ended")
}
