package devstack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// oldestPostgres is the minimum major version that is supported.
const oldestPostgres = 15

// installHint explains how to install Postgres.
const installHint = "install it (on Debian and Ubuntu: apt-get install postgresql), or give the address of a running one with --database-url"

// pgInstall is an installed Postgres server.
type pgInstall struct {
	binDir string
	major  int
}

func (p pgInstall) program(name string) string { return filepath.Join(p.binDir, name) }

var postgresVersion = regexp.MustCompile(`^postgres \(PostgreSQL\) (\d+)`)

// findPostgres returns the installed servers, the newest first.
func findPostgres(ctx context.Context) ([]pgInstall, error) {
	var dirs []string
	if path, err := exec.LookPath("postgres"); err == nil {
		dirs = append(dirs, filepath.Dir(path))
	}
	for _, pattern := range []string{"/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/usr/local/pgsql/bin"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			return nil, fmt.Errorf("look for Postgres: %w", err)
		}
		dirs = append(dirs, found...)
	}
	if out, err := exec.CommandContext(ctx, "pg_config", "--bindir").Output(); err == nil {
		dirs = append(dirs, strings.TrimSpace(string(out)))
	}

	var installs []pgInstall
	for _, dir := range dirs {
		// Links are resolved to the directory in which initdb finds the other programs.
		path, err := filepath.EvalSymlinks(filepath.Join(dir, "postgres"))
		if err != nil {
			continue
		}
		install := pgInstall{binDir: filepath.Dir(path)}
		known := slices.ContainsFunc(installs, func(other pgInstall) bool { return other.binDir == install.binDir })
		if known {
			continue
		}
		if _, err := os.Stat(install.program("initdb")); err != nil {
			continue
		}
		out, err := exec.CommandContext(ctx, path, "--version").Output()
		match := postgresVersion.FindSubmatch(out)
		if err != nil || match == nil {
			continue
		}
		if install.major, err = strconv.Atoi(string(match[1])); err == nil {
			installs = append(installs, install)
		}
	}
	slices.SortStableFunc(installs, func(a, b pgInstall) int { return b.major - a.major })
	return installs, nil
}

// choosePostgres returns the installation for a data directory of that major version, or the newest
// one if there is no directory yet (0).
func choosePostgres(installs []pgInstall, major int, dataDir string) (pgInstall, error) {
	if len(installs) == 0 {
		return pgInstall{}, errors.New("PostgreSQL is not installed: " + installHint)
	}
	if major == 0 {
		if newest := installs[0]; newest.major < oldestPostgres {
			return pgInstall{}, fmt.Errorf("PostgreSQL %d is too old, %d is needed: %s", newest.major, oldestPostgres, installHint)
		}
		return installs[0], nil
	}
	for _, install := range installs {
		if install.major == major {
			return install, nil
		}
	}
	return pgInstall{}, fmt.Errorf("%s was made by PostgreSQL %d, but PostgreSQL %d is installed: install version %d, or move the directory away to start from scratch",
		dataDir, major, installs[0].major, major)
}
