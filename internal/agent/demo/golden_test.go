package demo

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/permission"
)

var update = flag.Bool("update", false, "rewrite the golden files in testdata")

// TestGolden compares the agent's output, and the adapter's translation of it, with the files in
// testdata: one directory per script. Rewrite them with go test -run Golden -update and review the
// diff.
//
//	script           the prompts, separated by lines of ---; each has its own process
//	answers          one agent.Answer a line, to what is asked; where it is, tools have to ask
//	stream.jsonl     stdout of all of them, and how the process ended where it crashed
//	events           the events, as the log has them
//	transcripts      the agent's own files
//	conversation     what Parse finds in them
func TestGolden(t *testing.T) {
	t.Parallel()
	scripts, err := filepath.Glob("testdata/*/script")
	require.NoError(t, err)
	require.NotEmpty(t, scripts)
	for _, name := range scripts {
		dir := filepath.Dir(name)
		t.Run(filepath.Base(dir), func(t *testing.T) {
			t.Parallel()
			script, err := os.ReadFile(name)
			require.NoError(t, err)
			s := newStage(t)
			s.answers = answers(t, filepath.Join(dir, "answers"))
			if len(s.answers) > 0 {
				s.permissions.Default = permission.Ask
			}
			var stream, events strings.Builder
			for i, content := range strings.Split(string(script), "---\n") {
				run := fmt.Sprintf("run-%d", i+1)
				fs := s.play(t, run, strings.TrimSuffix(content, "\n"))
				for _, f := range fs {
					if f.Stream != agent.Stdout {
						fmt.Fprintf(&stream, "%s ", f.Stream)
					}
					fmt.Fprintf(&stream, "%s\n", f.Data)
				}
				es, end := translated(t, run, fs)
				require.NotNil(t, end)
				fmt.Fprintf(&events, "# %s\n%s\n", run, strings.Join(inLog(t, es), "\n"))
				fmt.Fprintf(&events, "# %s %s %+v\n", end.Outcome, end.Reason, end.Usage)
			}
			require.Empty(t, s.answers, "they were not requested")
			var transcripts strings.Builder
			files := s.files(t)
			for _, f := range files {
				fmt.Fprintf(&transcripts, "# %s\n%s", f.Path, f.Data)
			}
			c, err := Adapter{}.Parse(files)
			require.NoError(t, err)
			conversation, err := json.MarshalIndent(c, "", "  ")
			require.NoError(t, err)
			golden(t, filepath.Join(dir, "stream.jsonl"), stream.String())
			golden(t, filepath.Join(dir, "events"), events.String())
			golden(t, filepath.Join(dir, "transcripts"), transcripts.String())
			golden(t, filepath.Join(dir, "conversation"), string(conversation)+"\n")
		})
	}
}

func answers(t *testing.T, name string) []agent.Answer {
	t.Helper()
	data, err := os.ReadFile(name)
	if !errors.Is(err, os.ErrNotExist) {
		require.NoError(t, err)
	}
	var all []agent.Answer
	for raw := range bytes.Lines(data) {
		var a agent.Answer
		require.NoError(t, json.Unmarshal(raw, &a))
		all = append(all, a)
	}
	return all
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	if *update {
		require.NoError(t, os.WriteFile(name, []byte(got), 0o644))
	}
	want, err := os.ReadFile(name)
	require.NoError(t, err)
	require.Empty(t, cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")), "- %s, + now", name)
}
