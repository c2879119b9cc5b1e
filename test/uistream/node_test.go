package uistream

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// programs are the Node packages of package-lock.json. They are installed once into a cache of the user.
func programs(t *testing.T) string {
	t.Helper()
	lock, err := os.ReadFile("package-lock.json")
	require.NoError(t, err)
	sum := sha256.Sum256(lock)
	cache, err := os.UserCacheDir()
	require.NoError(t, err)
	dir := filepath.Join(cache, "overwinter-test", "uistream-"+hex.EncodeToString(sum[:8]))
	require.NoError(t, os.MkdirAll(dir, 0o755))
	guard, err := os.Create(filepath.Join(dir, "lock"))
	require.NoError(t, err)
	defer guard.Close()
	require.NoError(t, syscall.Flock(int(guard.Fd()), syscall.LOCK_EX)) // another test may be installing them
	complete := filepath.Join(dir, "complete")
	if _, err := os.Stat(complete); err != nil {
		for _, name := range []string{"package.json", "package-lock.json"} {
			data, err := os.ReadFile(name)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), data, 0o644))
		}
		run(t, dir, "npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts")
		require.NoError(t, os.WriteFile(complete, nil, 0o644))
	}
	return filepath.Join(dir, "node_modules")
}

// workspace is a folder with the scripts of this package and the Node packages that they import.
func workspace(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.Symlink(programs(t), filepath.Join(dir, "node_modules")))
	scripts, err := filepath.Glob("*.[mt]*[sx]")
	require.NoError(t, err)
	require.NotEmpty(t, scripts)
	for _, name := range append(scripts, "package.json") {
		data, err := os.ReadFile(name) // so that go test reruns the tests after a change
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), data, 0o644))
	}
	return dir
}

// node runs a script of a workspace and returns its output.
func node(t *testing.T, dir, script string, args ...string) string {
	t.Helper()
	return run(t, dir, "node", append([]string{script}, args...)...)
}

// run requires a program to succeed, and returns its output.
func run(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	require.NoError(t, cmd.Run(), "%s %v:\n%s", name, args, &out)
	return out.String()
}
