package acp_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/agent/acp"
	"github.com/overwinter-dev/overwinter/internal/conversation"
)

var update = flag.Bool("update", false, "rewrite the golden files in testdata")

// begun is the time of every frame that is read from a capture.
var begun = time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)

// TestCaptures reads what real agents said without the bridge. Each capture has a golden file, blocks,
// rewritten with go test -run Captures -update.
func TestCaptures(t *testing.T) {
	t.Parallel()
	dirs, err := filepath.Glob("testdata/captures/*")
	require.NoError(t, err)
	require.NotEmpty(t, dirs)
	for _, dir := range dirs {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			t.Parallel()
			data, err := os.ReadFile(filepath.Join(dir, "stdout.jsonl"))
			require.NoError(t, err)
			var folder conversation.Folder
			var got []string
			ends := translate(t, data, func(events []conversation.Event) {
				for _, e := range events {
					folder.Add(e)
				}
			})
			for _, b := range folder.Conversation().Threads[0].Blocks {
				require.NotEqual(t, "unparsed", b.Subtype, b.Message)
				line, err := json.Marshal(b)
				require.NoError(t, err)
				got = append(got, string(line))
			}
			text := strings.Join(append(got, ends...), "\n") + "\n"
			file := filepath.Join(dir, "blocks")
			if *update {
				require.NoError(t, os.WriteFile(file, []byte(text), 0o644))
			}
			want, err := os.ReadFile(file)
			require.NoError(t, err)
			require.Empty(t, cmp.Diff(strings.Split(string(want), "\n"), strings.Split(text, "\n")), "- golden, + now")
		})
	}
}

// translate translates lines and says how the turns ended.
func translate(t testing.TB, data []byte, each func([]conversation.Event)) []string {
	t.Helper()
	tr, err := acp.New().NewTranslator(agent.RunContext{}, nil)
	require.NoError(t, err)
	var ends []string
	no := int64(0)
	for line := range bytes.Lines(data) {
		out, err := tr.Translate(agent.Frame{No: no, Stream: agent.Stdout, At: begun, Data: bytes.TrimSuffix(line, []byte("\n"))})
		require.NoError(t, err)
		each(out.Events)
		if out.End != nil {
			ends = append(ends, fmt.Sprintf("%d %+v", no, *out.End))
			tr, err = agent.NextTurn(acp.New(), tr)
			require.NoError(t, err)
		}
		no++
	}
	each(tr.Cut(begun))
	return ends
}
