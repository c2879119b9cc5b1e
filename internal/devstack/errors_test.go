package devstack_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/devstack"
)

func (b bundle) stack(c devstack.Config) *devstack.Stack {
	b.t.Helper()
	stack, err := devstack.New(c)
	require.NoError(b.t, err)
	return stack
}

// fails runs a stack that must fail to start and returns its error.
func (b bundle) fails(c devstack.Config) string {
	b.t.Helper()
	err := b.stack(c).Run(b.t.Context())
	require.Error(b.t, err)
	require.NotContains(b.t, err.Error(), "\n")
	require.Empty(b.t, b.processes())
	return err.Error()
}

func TestPortInUseIsNamedWithItsFlag(t *testing.T) {
	t.Parallel()
	b := setup(t)
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { require.NoError(t, listener.Close()) }()
	port := listener.Addr().(*net.TCPAddr).Port
	for flag, c := range map[string]func(*devstack.Config){
		"--api-address":      func(c *devstack.Config) { c.APIAddress = listener.Addr().String() },
		"--temporal-port":    func(c *devstack.Config) { c.TemporalPort = port },
		"--temporal-ui-port": func(c *devstack.Config) { c.TemporalUIPort = port },
		"--local-modal-port": func(c *devstack.Config) { c.LocalModalPort = port },
	} {
		config := b.config()
		c(&config)
		require.Equal(t, "port "+strconv.Itoa(port)+" is already in use: stop what uses it, or choose another with "+flag, b.fails(config))
	}
}

func TestOnePortForTwoIsRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	c := b.config()
	c.TemporalPort, c.TemporalUIPort = 28765, 28765
	require.Contains(t, b.fails(c), "28765")
}

func TestSecondDevOnSameDirectoryIsRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	r := b.run(b.config())
	err := b.stack(b.config()).Run(t.Context())
	require.EqualError(t, err, "data directory "+b.dataDir+" is in use by another `overwinter dev` (process "+strconv.Itoa(os.Getpid())+"): stop that one, or choose another with --data-dir")
	_, err = query[int](t.Context(), b.url(), "SELECT 1")
	require.NoError(t, err, "the first one is left alone")
	r.end()
}

func TestDataDirectoryIsFile(t *testing.T) {
	t.Parallel()
	b := setup(t)
	c := b.config()
	c.DataDir = filepath.Join(b.dir, "file")
	require.NoError(t, os.WriteFile(c.DataDir, nil, 0o600))
	require.Contains(t, b.fails(c), c.DataDir+" is not a directory")
	c.DataDir = filepath.Join(c.DataDir, "below")
	require.Contains(t, b.fails(c), c.DataDir+" is not a directory")
}

func TestUnwritableDataDirectory(t *testing.T) {
	t.Parallel()
	b := setup(t)
	c := b.config()
	c.DataDir = "/proc/self" // not even for root
	require.Contains(t, b.fails(c), "data directory /proc/self is not writable")
	c.DataDir = "/proc/self/new"
	require.Contains(t, b.fails(c), "data directory /proc/self/new cannot be made")
}

func TestMissingTemporal(t *testing.T) {
	t.Parallel()
	b := setup(t)
	c := b.config()
	c.TemporalBinary = ""
	require.Contains(t, b.fails(c), "overwinter-temporal is neither in "+b.dir+" nor in PATH: run make build")
	c.TemporalBinary = filepath.Join(b.dir, "nothing")
	require.Contains(t, b.fails(c), "--temporal-binary "+c.TemporalBinary+" cannot be used: no such file or directory")
}

func TestFailedChildStartReportsReason(t *testing.T) {
	t.Parallel()
	b := setup(t)
	c := b.config()
	c.TemporalBinary = filepath.Join(b.dir, "broken")
	require.NoError(t, os.WriteFile(c.TemporalBinary, []byte("#!/bin/sh\necho the database is broken >&2\nexit 3\n"), 0o700))
	require.Equal(t, "start temporal: it ended with exit status 3: the database is broken (log: "+filepath.Join(b.dataDir, "logs", "temporal.log")+")", b.fails(c))
}

func TestPostgresDirectoryOfAnotherVersionIsKept(t *testing.T) {
	t.Parallel()
	b := setup(t)
	directory := filepath.Join(b.dataDir, "postgres")
	require.NoError(t, os.MkdirAll(directory, 0o700))
	require.Contains(t, b.fails(b.config()), directory+" is not a Postgres data directory (it has no PG_VERSION)")
	version := filepath.Join(directory, "PG_VERSION")
	require.NoError(t, os.WriteFile(version, []byte("11\n"), 0o600))
	require.Contains(t, b.fails(b.config()), directory+" was made by PostgreSQL 11, but PostgreSQL ")
	require.NoError(t, os.WriteFile(version, []byte("nonsense\n"), 0o600))
	require.Contains(t, b.fails(b.config()), directory+" is not a Postgres data directory")
}

func TestBrokenSecretKeyIsNotReplaced(t *testing.T) {
	t.Parallel()
	b := setup(t)
	require.NoError(t, os.MkdirAll(b.dataDir, 0o700))
	path := filepath.Join(b.dataDir, "secret.key")
	require.NoError(t, os.WriteFile(path, []byte("short\n"), 0o600))
	require.Contains(t, b.fails(b.config()), path+" does not hold 32 bytes in base64")
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "short\n", string(content))
}

func TestConfigIsChecked(t *testing.T) {
	t.Parallel()
	good := devstack.Config{
		DataDir: "x", Executable: "y", APIAddress: "127.0.0.1:0",
		Migrate: func(context.Context, string) error { return nil },
	}
	_, err := devstack.New(good)
	require.NoError(t, err)
	for want, change := range map[string]func(*devstack.Config){
		"the data directory is not set":               func(c *devstack.Config) { c.DataDir = "" },
		"path of the overwinter program":              func(c *devstack.Config) { c.Executable = "" },
		"the migration is not set":                    func(c *devstack.Config) { c.Migrate = nil },
		`--api-address "8080" is not of the form`:     func(c *devstack.Config) { c.APIAddress = "8080" },
		`--api-address ":http": "http" is not a port`: func(c *devstack.Config) { c.APIAddress = ":http" },
		`"0.0.0.0:8080" is not a loopback address`:    func(c *devstack.Config) { c.APIAddress = "0.0.0.0:8080" },
		"--temporal-port 70000 is not between":        func(c *devstack.Config) { c.TemporalPort = 70000 },
		"--temporal-ui-port -1 is not between":        func(c *devstack.Config) { c.TemporalUIPort = -1 },
		"--local-modal-port -1 is not between":        func(c *devstack.Config) { c.LocalModalPort = -1 },
	} {
		c := good
		change(&c)
		_, err := devstack.New(c)
		require.ErrorContains(t, err, want)
	}
}
