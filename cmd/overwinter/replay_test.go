package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// exportsOfReleases are the exported sessions of earlier releases.
const exportsOfReleases = "testdata/exports/*/*.ndjson"

// TestExportsOfEarlierReleasesReplay checks that sessions of every release continue with this one.
func TestExportsOfEarlierReleasesReplay(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(exportsOfReleases)
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(files), 3)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".ndjson"), func(t *testing.T) {
			t.Parallel()
			out, errs, code := replayed(t, file)
			require.Equal(t, exitDone, code, "%s%s", out, errs)
			require.Contains(t, out, "replays with this build")
			require.Contains(t, out, "session created")
		})
	}
}

// TestReplayRejectsForeignHistory checks a workflow that runs another activity, and a truncated
// export.
func TestReplayRejectsForeignHistory(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("testdata/exports/0.2.0/question_and_abort.ndjson")
	require.NoError(t, err)
	require.Contains(t, string(data), `"name":"RunTurn"`)
	changed := filepath.Join(t.TempDir(), "changed.ndjson")
	require.NoError(t, os.WriteFile(changed, bytes.ReplaceAll(data, []byte(`"name":"RunTurn"`), []byte(`"name":"RunAnotherTurn"`)), 0o600))
	out, errs, code := replayed(t, changed)
	require.Equal(t, exitFailed, code, "%s%s", out, errs)
	require.Contains(t, out, "does not replay with this build")

	lines := bytes.SplitAfter(data, []byte("\n"))
	truncated := filepath.Join(t.TempDir(), "truncated.ndjson")
	require.NoError(t, os.WriteFile(truncated, bytes.Join(lines[:len(lines)-2], nil), 0o600))
	_, errs, code = replayed(t, truncated)
	require.Equal(t, exitFailed, code)
	require.Contains(t, errs, "truncated")
}

func replayed(t *testing.T, file string) (stdout, stderr string, code int) {
	t.Helper()
	var out, errs bytes.Buffer
	code = program{args: []string{"replay", file}, stdin: strings.NewReader(""), stdout: &out, stderr: &errs}.Run(t.Context())
	return out.String(), errs.String(), code
}
