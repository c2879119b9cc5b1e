package devstack

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestChoosesInstalledPostgres(t *testing.T) {
	t.Parallel()
	installs := []pgInstall{{binDir: "/17", major: 17}, {binDir: "/15", major: 15}}
	newest, err := choosePostgres(installs, 0, "/data")
	require.NoError(t, err)
	require.Equal(t, 17, newest.major)
	same, err := choosePostgres(installs, 15, "/data")
	require.NoError(t, err)
	require.Equal(t, "/15", same.binDir)
	_, err = choosePostgres(installs, 16, "/data")
	require.EqualError(t, err, "/data was made by PostgreSQL 16, but PostgreSQL 17 is installed: install version 16, or move the directory away to start from scratch")
	_, err = choosePostgres(installs[:0], 0, "/data")
	require.ErrorContains(t, err, "PostgreSQL is not installed: install it (on Debian and Ubuntu: apt-get install postgresql)")
	_, err = choosePostgres([]pgInstall{{major: 14}}, 0, "/data")
	require.ErrorContains(t, err, "PostgreSQL 14 is too old, 15 is needed")
}

func TestDirectoriesInaccessibleToPostgresAreNamed(t *testing.T) {
	t.Parallel()
	stranger := pgUser{name: "stranger", credential: &syscall.Credential{Uid: 54321, Gid: 54321}}
	open := t.TempDir()
	for dir := open; dir != filepath.Clean(os.TempDir()) && dir != "/"; dir = filepath.Dir(dir) {
		require.NoError(t, os.Chmod(dir, 0o755))
	}
	closed := filepath.Join(open, "closed")
	require.NoError(t, os.Mkdir(closed, 0o750))
	require.NoError(t, stranger.checkReach(filepath.Join(open, "x")))
	require.EqualError(t, stranger.checkReach(filepath.Join(closed, "x")),
		"PostgreSQL runs as user stranger here, who may not enter "+closed+": choose a --data-dir elsewhere, or run chmod o+x "+closed)
	require.NoError(t, pgUser{}.checkReach(filepath.Join(closed, "x")), "its own user passes")
}
