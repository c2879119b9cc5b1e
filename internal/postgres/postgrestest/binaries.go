package postgrestest

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

var errNoPostgres = errors.New("no Postgres server binaries found: install Postgres 15 or newer " +
	"(Debian, Ubuntu: apt-get install postgresql; Fedora: dnf install postgresql-server; macOS: brew install postgresql)")

// binDir finds the directory with the binaries of a Postgres server: the newest in Debian's
// directories, else from PATH, else from pg_config.
func binDir() (string, error) {
	var candidates []string
	debian, _ := filepath.Glob("/usr/lib/postgresql/*/bin") // fails only on a bad pattern
	if newest := newestVersion(debian); newest != "" {
		candidates = append(candidates, newest)
	}
	if initdb, err := exec.LookPath("initdb"); err == nil {
		if real, err := filepath.EvalSymlinks(initdb); err == nil {
			candidates = append(candidates, filepath.Dir(real))
		}
	}
	if out, err := exec.CommandContext(context.Background(), "pg_config", "--bindir").Output(); err == nil {
		candidates = append(candidates, strings.TrimSpace(string(out)))
	}
	for _, dir := range candidates {
		if isExecutable(filepath.Join(dir, "initdb")) && isExecutable(filepath.Join(dir, "postgres")) {
			return dir, nil
		}
	}
	return "", errNoPostgres
}

// newestVersion returns the newest of directories such as /usr/lib/postgresql/15/bin.
func newestVersion(dirs []string) string {
	best, bestVersion := "", -1
	for _, dir := range dirs {
		if version, err := strconv.Atoi(filepath.Base(filepath.Dir(dir))); err == nil && version > bestVersion {
			best, bestVersion = dir, version
		}
	}
	return best
}

func isExecutable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}
