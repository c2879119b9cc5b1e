package openapi

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const document = "../../api/openapi.yaml"

// inputs has go test run the tests again once the document is another one, which only their programs read.
func inputs(t *testing.T) {
	t.Helper()
	_, err := os.ReadFile(document)
	require.NoError(t, err)
}

// programs are the Node packages of package-lock.json. They are installed once into a cache of the user.
func programs(t *testing.T) string {
	t.Helper()
	lock, err := os.ReadFile("package-lock.json")
	require.NoError(t, err)
	sum := sha256.Sum256(lock)
	cache, err := os.UserCacheDir()
	require.NoError(t, err)
	dir := filepath.Join(cache, "overwinter-test", "openapi-"+hex.EncodeToString(sum[:8]))
	require.NoError(t, os.MkdirAll(dir, 0o755))
	guard, err := os.Create(filepath.Join(dir, "lock"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, guard.Close()) })
	require.NoError(t, syscall.Flock(int(guard.Fd()), syscall.LOCK_EX)) // another test may install them just now
	modules := filepath.Join(dir, "node_modules")
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
	require.NoError(t, syscall.Flock(int(guard.Fd()), syscall.LOCK_UN))
	return modules
}

// run requires a program to succeed, and returns what it printed.
func run(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "REDOCLY_TELEMETRY=off", "REDOCLY_SUPPRESS_UPDATE_NOTICE=true", "NO_COLOR=1")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s %s:\n%s", name, strings.Join(args, " "), out)
	return string(out)
}

func TestLintersFindNothing(t *testing.T) {
	t.Parallel()
	inputs(t)
	bin := filepath.Join(programs(t), ".bin")
	out := run(t, ".", filepath.Join(bin, "redocly"), "lint", document, "--format=stylish", "--max-problems=1000")
	require.Contains(t, out, "is valid")
	require.NotContains(t, out, "You have", out) // so many warnings
	run(t, ".", filepath.Join(bin, "spectral"), "lint", "--fail-severity=hint", "--ruleset=.spectral.yaml", document)
}

func TestAGeneratedClientCompiles(t *testing.T) {
	t.Parallel()
	inputs(t)
	modules := programs(t)
	dir := t.TempDir()
	require.NoError(t, os.Symlink(modules, filepath.Join(dir, "node_modules")))
	run(t, ".", filepath.Join(modules, ".bin", "openapi-typescript"), document, "--output", filepath.Join(dir, "api.ts"))
	example, err := os.ReadFile("example.ts")
	require.NoError(t, err)
	files := map[string]string{"example.ts": string(example)}
	// The types keep events and blocks apart: a field of another type is refused.
	wrong := []struct{ right, wrong string }{
		{"event.data.delta", "event.data.block.id"},
		{`case "tool_use":`, `case "tool_used":`},
		{"event.data.question.questions", "event.data.questions"},
		{`? { answer: "once" }`, `? { answer: "twice" }`},
		{`prompt: { content, onUnknown: "retry" }`, `prompt: { text: content }`},
	}
	for i, w := range wrong {
		require.Contains(t, string(example), w.right)
		files[fmt.Sprintf("wrong%d.ts", i)] = strings.Replace(string(example), w.right, w.wrong, 1)
	}
	args := []string{
		"--noEmit", "--strict", "--exactOptionalPropertyTypes", "--noUncheckedIndexedAccess",
		"--target", "es2022", "--module", "esnext", "--moduleResolution", "bundler", "--lib", "es2022,dom",
	}
	for name, text := range files {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
		args = append(args, name)
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join(modules, ".bin", "tsc"), args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	require.Error(t, err)
	for name := range files {
		if name == "example.ts" {
			require.NotContains(t, string(out), name)
			continue
		}
		require.Contains(t, string(out), name+"(", "%s should not compile", name)
	}
}
