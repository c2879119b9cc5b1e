package uistream

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/porttest"
)

// startSystem runs the built `overwinter dev`, with its own data directory and ports, and returns the address of its API.
func startSystem(t *testing.T) string {
	t.Helper()
	program, err := filepath.Abs("../../bin/overwinter")
	require.NoError(t, err)
	require.FileExists(t, program, "the programs are not built: run make build")
	dir, err := os.MkdirTemp("", "overwinter-uistream-*") //nolint:usetesting // its parents must be open to another user
	require.NoError(t, err)
	require.NoError(t, os.Chmod(dir, 0o755)) // Postgres runs as another user below it
	api := fmt.Sprintf("127.0.0.1:%d", porttest.Free(t))
	cmd := exec.Command(program, "dev", "--data-dir", filepath.Join(dir, "data"), "--api-address", api,
		"--temporal-port", strconv.Itoa(porttest.Free(t)), "--temporal-ui-port", strconv.Itoa(porttest.Free(t)))
	cmd.Env = append(os.Environ(), "OVERWINTER_DRAIN_TIMEOUT=0s") // an ending test does not wait for turns
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		require.NoError(t, cmd.Process.Signal(os.Interrupt))
		require.NoError(t, cmd.Wait(), "overwinter dev did not end cleanly:\n%s", &out)
		require.Eventually(t, func() bool { return os.RemoveAll(dir) == nil }, 2*time.Minute, 50*time.Millisecond)
	})
	require.Eventually(t, func() bool {
		response, err := http.Get("http://" + api + "/readyz")
		if err != nil {
			return false
		}
		defer response.Body.Close()
		return response.StatusCode == http.StatusOK
	}, 2*time.Minute, 50*time.Millisecond, "the system is not ready")
	return "http://" + api
}

// TestLiveSessions makes clients of both protocols follow sessions of a running system.
func TestLiveSessions(t *testing.T) {
	t.Parallel()
	api := startSystem(t)
	scripts, err := filepath.Glob("live*.mjs")
	require.NoError(t, err)
	require.NotEmpty(t, scripts)
	for _, script := range scripts {
		t.Run(script, func(t *testing.T) {
			t.Parallel()
			out := run(t, workspace(t), "env", "OVERWINTER_TEST_API="+api, "node", "--test", script)
			require.Contains(t, out, "# fail 0")
		})
	}
}

// TestRunSurvivesAPILoss kills the api, which dev restarts, while an agent of AG-UI follows a turn.
func TestRunSurvivesAPILoss(t *testing.T) {
	t.Parallel()
	api := startSystem(t)
	programs, err := filepath.Glob("/proc/[0-9]*/cmdline")
	require.NoError(t, err)
	killed := ""
	for _, file := range programs {
		args, err := os.ReadFile(file)
		if err == nil && strings.Contains(string(args), "overwinter\x00api\x00--address\x00"+strings.TrimPrefix(api, "http://")) {
			killed = strings.Split(file, "/")[2]
		}
	}
	require.NotEmpty(t, killed, "dev has no api")
	out := run(t, workspace(t), "env", "OVERWINTER_TEST_API="+api, "OVERWINTER_TEST_PID="+killed, "node", "--test", "killed-agui.mjs")
	require.Contains(t, out, "# fail 0")
}

// TestDocumentedPageIsTested also checks the page with the TypeScript compiler.
func TestDocumentedPageIsTested(t *testing.T) {
	t.Parallel()
	document, err := os.ReadFile("../../docs/clients.md")
	require.NoError(t, err)
	for _, name := range []string{"chat.tsx"} {
		code, err := os.ReadFile(name)
		require.NoError(t, err)
		require.Contains(t, string(document), "```"+strings.TrimPrefix(filepath.Ext(name), ".")+"\n"+string(code)+"```\n", "docs/clients.md has another %s", name)
	}
	dir := workspace(t)
	run(t, dir, filepath.Join(dir, "node_modules", ".bin", "tsc"), "--noEmit", "--strict", "--jsx", "react-jsx", "--target", "es2023", "--module", "esnext",
		"--moduleResolution", "bundler", "--lib", "es2023,dom,dom.iterable", "--skipLibCheck", "chat.tsx")
}
