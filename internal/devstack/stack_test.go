package devstack_test

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestStartsKeepsItsStateAndStopsGracefully(t *testing.T) {
	t.Parallel()
	b := setup(t)
	r := b.run(b.config())

	banner := b.output.String()
	require.Contains(t, banner, r.APIURL())
	require.Contains(t, banner, "modal, isolation: namespaces, on this machine")
	require.NotContains(t, banner, "sharing its network")
	require.Contains(t, banner, "curl -s "+r.APIURL()+"/api/sessions")
	require.Regexp(t, `Metrics +`+regexp.QuoteMeta(r.APIURL())+`/metrics, http://127\.0\.0\.1:\d+/metrics\n`, banner)
	require.GreaterOrEqual(t, len(b.processes()), 5)
	_, err := query[int](t.Context(), b.url(), "INSERT INTO kept VALUES (42) RETURNING n")
	require.NoError(t, err)
	r.end()
	require.Empty(t, b.processes())

	notes := b.notes()
	require.ElementsMatch(t, []string{"start serve", "start local-modal"}, notes[:2], "dependencies come first")
	require.ElementsMatch(t, []string{"start worker", "start api"}, notes[2:4])
	require.Equal(t, []string{"stop worker", "stop api", "stop local-modal", "stop serve"}, notes[4:])

	firstURL := b.url()
	r = b.run(b.config())
	first, err := url.Parse(firstURL)
	require.NoError(t, err)
	second, err := url.Parse(b.url())
	require.NoError(t, err)
	require.Equal(t, first.User, second.User, "the password stays")
	if first.Host != second.Host { // unless another program has taken the port in the meantime
		t.Logf("the port did not stay: %s, %s", first.Host, second.Host)
	}
	n, err := query[int](t.Context(), b.url(), "SELECT n FROM kept")
	require.NoError(t, err)
	require.Equal(t, 42, n)
	r.end()
}

func TestKilledChildrenAreRestarted(t *testing.T) {
	t.Parallel()
	b := setup(t)
	r := b.run(b.config())
	_, err := query[int](t.Context(), b.url(), "INSERT INTO kept VALUES (42) RETURNING n")
	require.NoError(t, err)
	for _, name := range []string{"api", "worker", "local-modal", "temporal", "postgres"} {
		pid := b.pid(name)
		require.NotZero(t, pid, name)
		require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
		b.eventually(func() bool { now := b.pid(name); return now != 0 && now != pid }, name+" did not come back")
	}
	b.eventually(func() bool {
		n, err := query[int](context.Background(), b.url(), "SELECT n FROM kept")
		return err == nil && n == 42
	}, "the database did not come back")
	r.end()
	require.Empty(t, b.processes())
}

func TestChildrenGetTheirEnvironment(t *testing.T) {
	t.Parallel()
	b := setup(t)
	r := b.run(b.config())
	defer r.end()
	env := environment(t, r.APIURL())
	for from, databaseURL := range map[string]string{"127.0.0.1": b.url(), "its socket": env["OVERWINTER_DATABASE_URL"]} {
		client, err := query[string](t.Context(), databaseURL, "SELECT coalesce(host(inet_client_addr()), 'its socket')")
		require.NoError(t, err)
		require.Equal(t, from, client)
	}
	require.NotContains(t, env, "OF_THE_USER", "a variable that neither worker nor api knows")
	require.Equal(t, "http://proxy.invalid:3128", env["HTTPS_PROXY"])
	require.Equal(t, "7", env["OVERWINTER_MAX_TURNS"])
	require.Equal(t, "default", env["TEMPORAL_NAMESPACE"])
	require.NotEmpty(t, env["TEMPORAL_ADDRESS"])
	key, err := os.ReadFile(filepath.Join(b.dataDir, "secret.key"))
	require.NoError(t, err)
	require.Equal(t, strings.TrimSpace(string(key)), env["OVERWINTER_SECRET_KEY"])

	local := environment(t, env["MODAL_SERVER_URL"])
	for _, secret := range []string{"OVERWINTER_SECRET_KEY", "OVERWINTER_DATABASE_URL", "OF_THE_USER"} {
		require.NotContains(t, local, secret)
	}
	for _, secret := range []string{"secret.key", "postgres.password", "postgres-app.password", "database-url"} {
		info, err := os.Stat(filepath.Join(b.dataDir, secret))
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o600), info.Mode().Perm(), secret)
	}
}

// environment returns the environment of a simulated program.
func environment(t *testing.T, url string) map[string]string {
	t.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Get(url + "/environment")
	require.NoError(t, err)
	defer func() { require.NoError(t, response.Body.Close()) }()
	var pairs []string
	require.NoError(t, json.NewDecoder(response.Body).Decode(&pairs))
	env := make(map[string]string)
	for _, pair := range pairs {
		name, value, _ := strings.Cut(pair, "=")
		env[name] = value
	}
	return env
}

func TestExternalServicesAreUsed(t *testing.T) {
	t.Parallel()
	b := setup(t)
	first := b.run(b.config())
	env := environment(t, first.APIURL())

	other := setup(t)
	c := other.config()
	c.DatabaseURL, c.TemporalAddress, c.Modal = env["OVERWINTER_DATABASE_URL"], env["TEMPORAL_ADDRESS"], true
	c.Environment = append(c.Environment, "MODAL_TOKEN_ID=mine")
	second := other.run(c)
	require.ElementsMatch(t, []string{"start worker", "start api"}, other.notes())
	env = environment(t, second.APIURL())
	require.Equal(t, "mine", env["MODAL_TOKEN_ID"])
	require.NotContains(t, env, "MODAL_SERVER_URL")
	require.NotContains(t, other.output.String(), "sharing its network")
	second.end()
	first.end()
}

func TestKilledDevLeavesNoProcessesAndKeepsState(t *testing.T) {
	t.Parallel()
	b := setup(t)
	dev := exec.CommandContext(t.Context(), b.program, "dev", b.dataDir)
	output, err := dev.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, dev.Start())
	for lines := bufio.NewScanner(output); lines.Scan(); {
		if strings.Contains(lines.Text(), "overwinter is ready") {
			break
		}
	}
	_, err = query[int](t.Context(), b.url(), "INSERT INTO kept VALUES (42) RETURNING n")
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(b.processes()), 6)

	require.NoError(t, dev.Process.Kill())
	require.Error(t, dev.Wait())
	r := b.run(b.config()) // at once, while children may still be ending
	n, err := query[int](t.Context(), b.url(), "SELECT n FROM kept")
	require.NoError(t, err)
	require.Equal(t, 42, n)
	r.end()
}

func TestEndsOrphanedPostgres(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.run(b.config()).end()
	// Simulates a crash between the start of Postgres and its record.
	options, err := os.ReadFile(filepath.Join(b.dataDir, "postgres", "postmaster.opts"))
	require.NoError(t, err)
	args := strings.Fields(strings.NewReplacer(`"`, "").Replace(string(options)))
	stray := exec.CommandContext(t.Context(), args[0], "-D", filepath.Join(b.dataDir, "postgres"),
		"-c", "unix_socket_directories=", "-c", "listen_addresses=127.0.0.1", "-c", "port=0")
	stray.Args = append(stray.Args[:len(stray.Args)-1], "port="+strings.Split(strings.Split(b.url(), "127.0.0.1:")[1], "/")[0])
	owner, err := os.Stat(filepath.Join(b.dataDir, "postgres"))
	require.NoError(t, err)
	if stat, ok := owner.Sys().(*syscall.Stat_t); ok && os.Geteuid() == 0 {
		stray.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: stat.Uid, Gid: stat.Gid}}
	}
	stray.Dir = filepath.Join(b.dataDir, "postgres")
	require.NoError(t, stray.Start())
	ended := make(chan error, 1) // so that the goroutine ends without a receiver
	go func() { ended <- stray.Wait() }()
	b.eventually(func() bool { _, err := query[int](t.Context(), b.url(), "SELECT 1"); return err == nil }, "no stray Postgres")

	b.run(b.config()).end()
	select {
	case err := <-ended:
		require.NoError(t, err, "it was shut down, not killed")
	case <-time.After(waitLimit):
		require.Fail(t, "the stray Postgres is still there")
	}
}

func TestKillEndsAllAtOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	r := b.run(b.config())
	r.Kill()
	r.stop()
	select {
	case err := <-r.ended:
		require.EqualError(t, err, "killed before everything had stopped; state is kept")
	case <-time.After(waitLimit):
		require.Fail(t, "Run still waits")
	}
	b.eventually(func() bool { return len(b.processes()) == 0 }, "processes are left")
}

func TestStopDuringStart(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx, cancel := context.WithCancel(t.Context())
	c := b.config()
	c.Migrate = func(ctx context.Context, _ string) error {
		cancel()
		<-ctx.Done()
		return ctx.Err()
	}
	require.NoError(t, b.stack(c).Run(ctx))
	require.Empty(t, b.processes())
}

// TestDatabaseOwnerIsNotSuperuser includes a database that an earlier version
// created for the superuser.
func TestDatabaseOwnerIsNotSuperuser(t *testing.T) {
	t.Parallel()
	b := setup(t)
	r := b.run(b.config())
	requirePlainRole(t, b)

	// The state before that role existed.
	password, err := os.ReadFile(filepath.Join(b.dataDir, "postgres.password"))
	require.NoError(t, err)
	admin, err := url.Parse(b.url())
	require.NoError(t, err)
	admin.User = url.UserPassword("overwinter", strings.TrimSpace(string(password)))
	for _, statement := range []string{
		"INSERT INTO kept VALUES (42)",
		"CREATE TABLE counted (n bigserial, kind text)", "CREATE VIEW view_of_it AS SELECT n FROM counted", "CREATE TYPE mood AS ENUM ('calm')",
		"CREATE SEQUENCE own", "CREATE FUNCTION one(int) RETURNS int LANGUAGE sql AS 'SELECT 1'",
		"ALTER TABLE kept OWNER TO overwinter", "ALTER DATABASE overwinter OWNER TO overwinter", "ALTER SCHEMA public OWNER TO pg_database_owner",
		"DROP OWNED BY overwinter_app", "DROP ROLE overwinter_app",
	} {
		require.NoError(t, execute(t.Context(), admin.String(), statement), statement)
	}
	r.end()

	r = b.run(b.config())
	requirePlainRole(t, b)
	n, err := query[int](t.Context(), b.url(), "SELECT n FROM kept")
	require.NoError(t, err)
	require.Equal(t, 42, n)
	for _, statement := range []string{
		"INSERT INTO counted (kind) VALUES ('a')", "DROP VIEW view_of_it", "ALTER TABLE counted ADD COLUMN x int", "DROP TABLE counted",
		"ALTER TYPE mood ADD VALUE 'loud'", "DROP SEQUENCE own", "DROP FUNCTION one(int)", "CREATE TABLE fresh (n int)",
	} {
		require.NoError(t, execute(t.Context(), b.url(), statement), statement)
	}
	r.end()
}

// requirePlainRole checks the restrictions of the role of worker and api.
func requirePlainRole(t *testing.T, b bundle) {
	t.Helper()
	super, err := query[bool](t.Context(), b.url(), "SELECT rolsuper OR rolcreaterole OR rolcreatedb OR rolreplication FROM pg_roles WHERE rolname = current_user")
	require.NoError(t, err)
	require.False(t, super)
	_, err = query[string](t.Context(), b.url(), "SELECT pg_read_file('PG_VERSION')")
	require.ErrorContains(t, err, "permission denied")
}
