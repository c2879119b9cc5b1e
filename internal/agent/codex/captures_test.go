package codex_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/agent/codex"
	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/session"
)

var update = flag.Bool("update", false, "rewrite the golden files in testdata")

// begun is the time of every frame that is read from a capture.
var begun = time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)

// exception is why the two sides of a capture differ, which was made without the bridge and has no
// journal; the package documentation lists them all.
type exception string

const (
	lost    exception = "what was being written when the turn was broken off is in the stream alone"
	untimed exception = "a call that never ended has the time of the model's call in the transcript"
	retried exception = "requests that were sent again are in the stream alone"
	refused exception = "a call that was cancelled counts as broken off in the transcript"
	unheard exception = "what was answered to a question is in the transcript alone"
)

// exceptions are the captures in which the two sides differ.
var exceptions = map[string][]exception{
	"asks-its-user":         {unheard, untimed},
	"interrupted-in-a-tool": {untimed},
	"is-cancelled":          {refused, untimed},
	"is-denied":             {untimed},
	"killed-in-a-tool":      {untimed},
	"killed-in-text":        {lost},
	"model-breaks-off":      {retried},
	"model-fails":           {retried},
	"plain-interrupt-text":  {lost},
}

// TestCaptures reads what the real program wrote: its stream and its transcript must give the same
// blocks. Each capture has a golden file, blocks, rewritten with go test -run Captures -update.
func TestCaptures(t *testing.T) {
	t.Parallel()
	dirs, err := filepath.Glob("testdata/captures/*")
	require.NoError(t, err)
	require.NotEmpty(t, dirs)
	for _, dir := range dirs {
		name := filepath.Base(dir)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			streamed, ends := stream(t, dir)
			parsed, err := codex.New().Parse(transcript(t, dir))
			require.NoError(t, err)
			var golden strings.Builder
			for _, l := range append(lines(parsed), ends...) {
				fmt.Fprintln(&golden, l)
			}
			file := filepath.Join(dir, "blocks")
			if *update {
				require.NoError(t, os.WriteFile(file, []byte(golden.String()), 0o644))
			}
			want, err := os.ReadFile(file)
			require.NoError(t, err)
			require.Empty(t, cmp.Diff(strings.Split(string(want), "\n"), strings.Split(golden.String(), "\n")), "- golden, + now")
			for _, e := range exceptions[name] {
				before := cmp.Diff(lines(parsed), lines(streamed))
				parsed, streamed = except(e, parsed, streamed)
				require.NotEqual(t, before, cmp.Diff(lines(parsed), lines(streamed)), "no exception: %s", e)
			}
			require.Empty(t, cmp.Diff(lines(parsed), lines(streamed)), "- parsed, + streamed")
		})
	}
}

// except makes an exception.
func except(e exception, parsed, streamed conversation.Conversation) (p, s conversation.Conversation) {
	switch e {
	case lost:
		return parsed, without(streamed, func(b conversation.Block) bool {
			return b.Status == conversation.Aborted && b.Type == conversation.AssistantText
		})
	case retried:
		return parsed, without(streamed, func(b conversation.Block) bool { return b.Subtype == "retry" })
	case refused:
		for _, c := range []conversation.Conversation{parsed, streamed} {
			for _, thread := range c.Threads {
				for i := range thread.Blocks {
					if b := &thread.Blocks[i]; b.Type == conversation.ToolUse {
						b.Status, b.Input = conversation.Aborted, nil
					}
				}
			}
		}
		return parsed, without(streamed, func(b conversation.Block) bool { return b.Type == conversation.ToolResult })
	case unheard:
		return without(parsed, func(b conversation.Block) bool {
			return b.Type == conversation.ToolResult && strings.Contains(string(b.Output), "answers")
		}), streamed
	case untimed:
		for _, c := range []conversation.Conversation{parsed, streamed} {
			for _, thread := range c.Threads {
				for i := range thread.Blocks {
					thread.Blocks[i].CreatedAt = time.Time{}
				}
			}
		}
		return parsed, streamed
	}
	panic("unknown exception " + string(e))
}

func without(c conversation.Conversation, drop func(b conversation.Block) bool) conversation.Conversation {
	out := conversation.Conversation{}
	for _, t := range c.Threads {
		out.Threads = append(out.Threads, conversation.Thread{ID: t.ID, Blocks: slices.DeleteFunc(slices.Clone(t.Blocks), drop)})
	}
	return out
}

// lines are the blocks of a conversation, one a line.
func lines(c conversation.Conversation) []string {
	var out []string
	for _, t := range c.Threads {
		out = append(out, "# "+t.ID)
		for _, b := range t.Blocks {
			data, err := json.Marshal(b)
			if err != nil {
				panic(err) // a block that cannot be written down
			}
			out = append(out, string(data))
		}
	}
	return out
}

// frames are the lines of a file as a journal has them.
func frames(t testing.TB, name string) []agent.Frame {
	t.Helper()
	data, err := os.ReadFile(name)
	require.NoError(t, err)
	var out []agent.Frame
	for line := range bytes.Lines(data) {
		out = append(out, agent.Frame{No: int64(len(out)), Stream: agent.Stdout, At: begun, Data: bytes.TrimSuffix(line, []byte("\n"))})
	}
	return out
}

// stream folds the stream of a capture and says how its turns ended.
func stream(t *testing.T, dir string) (conversation.Conversation, []string) {
	t.Helper()
	var f conversation.Folder
	var ends []string
	tr, err := codex.New().NewTranslator(agent.RunContext{}, nil)
	require.NoError(t, err)
	for _, frame := range frames(t, filepath.Join(dir, "stdout.jsonl")) {
		out, err := tr.Translate(frame)
		require.NoError(t, err)
		for _, e := range out.Events {
			f.Add(e)
		}
		if out.End != nil {
			ends = append(ends, fmt.Sprintf("%d %+v", frame.No, *out.End))
			tr, err = codex.New().NewTranslator(agent.RunContext{}, nil)
			require.NoError(t, err)
		}
	}
	for _, e := range tr.Cut(begun) {
		f.Add(e)
	}
	return f.Conversation(), ends
}

func transcript(t testing.TB, dir string) []session.TranscriptFile {
	t.Helper()
	var files []session.TranscriptFile
	require.NoError(t, filepath.WalkDir(filepath.Join(dir, "transcript"), func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(name)
		files = append(files, session.TranscriptFile{Path: name, Data: data})
		return err
	}))
	return files
}
