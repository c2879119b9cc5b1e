package terminal_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/event"
	"github.com/overwinter-dev/overwinter/internal/terminal"
)

var update = flag.Bool("update", false, "write what is shown to testdata")

// readLog reads a log in the format of `overwinter session follow -o json`.
func readLog(t *testing.T, name string) []event.JSON {
	t.Helper()
	data, err := os.ReadFile(name)
	require.NoError(t, err)
	var out []event.JSON
	lines := bufio.NewScanner(bytes.NewReader(data))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e event.JSON
		require.NoError(t, json.Unmarshal(lines.Bytes(), &e))
		out = append(out, e)
	}
	require.NoError(t, lines.Err())
	return out
}

// show shows events and returns the output.
func show(t *testing.T, events []event.JSON, o terminal.Options) string {
	t.Helper()
	var out bytes.Buffer
	v := terminal.New(&out, o)
	for _, e := range events {
		require.NoError(t, v.Event(e))
	}
	require.NoError(t, v.Close())
	return out.String()
}

// TestLogsAreShown shows logs of real sessions: as plain text, in full and with times, and as the
// final content of a terminal of 72 columns.
func TestLogsAreShown(t *testing.T) {
	t.Parallel()
	logs, err := filepath.Glob("testdata/*.ndjson")
	require.NoError(t, err)
	require.NotEmpty(t, logs)
	for _, log := range logs {
		events := readLog(t, log)
		base := strings.TrimSuffix(log, ".ndjson")
		for name, got := range map[string]string{
			base + ".plain": show(t, events, terminal.Options{}),
			base + ".full":  show(t, events, terminal.Options{Full: true, Times: time.UTC}),
			base + ".terminal": emulate(t, 72, show(t, events, terminal.Options{
				Rewrite: true, Color: true, Width: func() int { return 72 },
			})),
		} {
			t.Run(filepath.Base(name), func(t *testing.T) {
				t.Parallel()
				if *update {
					require.NoError(t, os.WriteFile(name, []byte(got), 0o600))
				}
				want, err := os.ReadFile(name)
				require.NoError(t, err)
				require.Equal(t, string(want), got)
			})
		}
	}
}
