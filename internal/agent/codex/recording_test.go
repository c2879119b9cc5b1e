package codex_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/agent/agenttest/capture"
)

// TestExec reads the output of codex exec --json. Its items have different ids and a different
// order, so there is only a golden file; rewrite it with go test -run Exec -update.
func TestExec(t *testing.T) {
	t.Parallel()
	capture.Each(t, "testdata/exec/*", func(t *testing.T, dir string) {
		streamed, ends := stream(t, dir)
		golden := append(capture.Lines(streamed), ends...)
		capture.Golden(t, filepath.Join(dir, "blocks"), golden)
		require.Len(t, ends, 1)
		require.NotContains(t, strings.Join(golden, "\n"), "unparsed")
	})
}

func TestLongOutputMatchesRollout(t *testing.T) {
	t.Parallel()
	const mark = `\n... command output truncated for persistence ...\n`
	for name, c := range map[string]struct{ said, want string }{
		"up to the limit": {strings.Repeat("a", 65536), strings.Repeat("a", 65536)},
		"one byte more":   {strings.Repeat("b", 65537), strings.Repeat("b", 32743) + mark + strings.Repeat("b", 32743)},
		"between letters": {"a" + strings.Repeat("€", 40000) + "bc", "a" + strings.Repeat("€", 10914) + mark + strings.Repeat("€", 10913) + "bc"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			require.NoError(t, os.WriteFile(filepath.Join(dir, "stdout.jsonl"), []byte(`{"method":"turn/started","params":{"threadId":"t","turn":{"id":"u"}}}
{"method":"item/completed","params":{"threadId":"t","turnId":"u","item":{"type":"commandExecution","id":"c","command":"x","cwd":"/","status":"completed","exitCode":0,"aggregatedOutput":"`+c.said+`"}}}
`), 0o600))
			streamed, _ := stream(t, dir)
			require.Len(t, streamed.Threads, 1)
			require.Len(t, streamed.Threads[0].Blocks, 2)
			require.Equal(t, `"`+c.want+`"`, string(streamed.Threads[0].Blocks[1].Output))
		})
	}
}
