package openapi

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/test/npmtest"
)

const (
	document      = "../../api/openapi.yaml"
	asyncDocument = "../../api/asyncapi.yaml"
)

// inputs makes go test rerun the tests after a change of the document, which only their programs
// read.
func inputs(t *testing.T) {
	t.Helper()
	for _, name := range []string{document, asyncDocument} {
		_, err := os.ReadFile(name)
		require.NoError(t, err)
	}
}

// programs are the Node packages of package-lock.json.
func programs(t *testing.T) string {
	t.Helper()
	return npmtest.Install(t, "openapi")
}

// run requires a program to succeed, and returns its output.
func run(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	return npmtest.Run(t, dir, []string{"REDOCLY_TELEMETRY=off", "REDOCLY_SUPPRESS_UPDATE_NOTICE=true"}, name, args...)
}

func TestOpenAPILintersFindNoErrors(t *testing.T) {
	t.Parallel()
	inputs(t)
	bin := filepath.Join(programs(t), ".bin")
	out := run(t, ".", filepath.Join(bin, "redocly"), "lint", document, "--format=stylish", "--max-problems=1000")
	require.Contains(t, out, "is valid")
	require.NotContains(t, out, "You have", out) // the linter prints this before the number of warnings
	run(t, ".", filepath.Join(bin, "spectral"), "lint", "--fail-severity=hint", "--ruleset=.spectral.yaml", document)
}

func TestAsyncAPIParserFindsNoErrors(t *testing.T) {
	t.Parallel()
	inputs(t)
	dir := t.TempDir()
	require.NoError(t, os.Symlink(programs(t), filepath.Join(dir, "node_modules")))
	script, err := os.ReadFile("asyncapi.mjs")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "asyncapi.mjs"), script, 0o644))
	path, err := filepath.Abs(asyncDocument)
	require.NoError(t, err)
	require.Contains(t, run(t, dir, "node", "asyncapi.mjs", path), "valid, ")
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	wrong := filepath.Join(dir, "wrong.yaml")
	require.NoError(t, os.WriteFile(wrong, []byte(strings.Replace(string(data), "action: send", "action: sing", 1)), 0o644))
	cmd := exec.CommandContext(t.Context(), "node", "asyncapi.mjs", wrong)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), "operations")
}

func TestGeneratedClientCompiles(t *testing.T) {
	t.Parallel()
	inputs(t)
	modules := programs(t)
	dir := t.TempDir()
	require.NoError(t, os.Symlink(modules, filepath.Join(dir, "node_modules")))
	run(t, ".", filepath.Join(modules, ".bin", "openapi-typescript"), document, "--output", filepath.Join(dir, "api.ts"))
	example, err := os.ReadFile("example.ts")
	require.NoError(t, err)
	files := map[string]string{"example.ts": string(example)}
	// The types distinguish events and blocks: a field of another type is refused.
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

// TestGeneratedGoClientCompiles generates a client with the generator that most Go programs use, and compiles a program that was
// written against it.
func TestGeneratedGoClientCompiles(t *testing.T) {
	t.Parallel()
	inputs(t)
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(dir, os.DirFS("testdata/program")))
	client := filepath.Join(dir, "api", "api.go")
	require.NoError(t, os.Mkdir(filepath.Dir(client), 0o755))
	run(t, ".", "go", "tool", "-modfile=../../tools/tools.mod", "oapi-codegen", "-generate", "types,client", "-package", "api", "-o", client, document)
	run(t, dir, "go", "vet", "./...")
}
