// Package npmtest installs the Node packages of a package-lock.json for tests.
package npmtest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Install returns the directory node_modules with the packages of the working directory's package-lock.json. They are
// installed once, into a cache of the user under a name.
func Install(t *testing.T, name string) string {
	t.Helper()
	return InstallFrom(t, ".", name)
}

// InstallFrom is Install for the package-lock.json of a directory. Packages in the directory itself, its workspaces, are not installed.
func InstallFrom(t *testing.T, from, name string) string {
	t.Helper()
	lock, err := os.ReadFile(filepath.Join(from, "package-lock.json"))
	require.NoError(t, err)
	sum := sha256.Sum256(lock)
	dir := Made(t, name, sum[:], func(dir string) {
		for _, name := range []string{"package.json", "package-lock.json", ".npmrc"} {
			data, err := os.ReadFile(filepath.Join(from, name))
			if name == ".npmrc" && errors.Is(err, os.ErrNotExist) {
				continue
			}
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), data, 0o644))
		}
		Run(t, dir, nil, "npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts")
	})
	return filepath.Join(dir, "node_modules")
}

// Made returns a directory in the cache of the user, identified by a name and its inputs, which
// fill fills once. Other tests, including those of other processes, wait until it is filled.
func Made(t *testing.T, name string, of []byte, fill func(dir string)) (dir string) {
	t.Helper()
	cache, err := os.UserCacheDir()
	require.NoError(t, err)
	dir = filepath.Join(cache, "overwinter-test", name+"-"+hex.EncodeToString(of[:8]))
	require.NoError(t, os.MkdirAll(dir, 0o755))
	guard, err := os.Create(filepath.Join(dir, "lock"))
	require.NoError(t, err)
	defer func() { require.NoError(t, guard.Close()) }()
	require.NoError(t, syscall.Flock(int(guard.Fd()), syscall.LOCK_EX)) // another test may be filling it
	complete := filepath.Join(dir, "complete")
	if _, err := os.Stat(complete); err != nil {
		fill(dir)
		require.NoError(t, os.WriteFile(complete, nil, 0o644))
	}
	return dir
}

// Run requires a program to succeed in a directory, with variables in addition to those of the
// test, and returns its output.
func Run(t *testing.T, dir string, env []string, name string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = append(append(os.Environ(), "NO_COLOR=1"), env...)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s %s:\n%s", name, strings.Join(args, " "), out)
	return string(out)
}
