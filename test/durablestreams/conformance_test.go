package durablestreams

import (
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/durablestream"
	"github.com/overwinter-dev/overwinter/test/npmtest"
)

// workspace is a directory in which Node finds the packages and the given files.
func workspace(t *testing.T, files ...string) (dir, bin string) {
	t.Helper()
	modules := npmtest.Install(t, "durablestreams")
	dir = t.TempDir()
	require.NoError(t, os.Symlink(modules, filepath.Join(dir, "node_modules")))
	for _, name := range append(files, "package.json") {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), text, 0o644))
	}
	return dir, filepath.Join(modules, ".bin")
}

// ours are the groups of the suite except for forks. A client creates a fork of another stream with
// PUT, which the shim does not support; reading a fork is reading a stream. Subscriptions are an
// option of the suite that is off by default.
const ours = `^(?!Fork - )`

var passed = regexp.MustCompile(`Tests\s+(\d+) passed`)

func TestReadHandlerConforms(t *testing.T) {
	t.Parallel()
	const longPoll = 2 * time.Second
	server := httptest.NewServer(newShim(durablestream.Handler{LongPoll: longPoll, Chunk: 64 << 10}))
	t.Cleanup(server.Close)
	dir, bin := workspace(t, "conformance.test.mjs")
	out := npmtest.Run(t, dir, []string{
		"CONFORMANCE_TEST_URL=" + server.URL, "LONG_POLL_MS=" + strconv.FormatInt(longPoll.Milliseconds(), 10),
	}, filepath.Join(bin, "vitest"), "run", "--testTimeout", "60000", "--testNamePattern", ours, "conformance.test.mjs") // 5 s by default, too little on a busy machine
	found := passed.FindStringSubmatch(out)
	require.NotNil(t, found, "%s", out)
	n, err := strconv.Atoi(found[1])
	require.NoError(t, err)
	require.GreaterOrEqual(t, n, 250, "the suite has run: %s", out)
	t.Log(found[0])
}
