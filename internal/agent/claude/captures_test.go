package claude_test

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
	"github.com/overwinter-dev/overwinter/internal/agent/claude"
	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/session"
)

var update = flag.Bool("update", false, "rewrite the golden files in testdata")

// begun is the time of every frame that is read from a capture.
var begun = time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)

// exception is why the two sides of a capture differ; the package documentation lists them all.
type exception string

const (
	killed   exception = "what was being written when the process was killed is in the stream alone"
	silent   exception = "the stream was made without --replay-user-messages and has no prompts"
	repeated exception = "a prompt that had no answer is read again, and has the time of that"
)

// exceptions are the captures in which the two sides differ.
var exceptions = map[string][]exception{
	"killed-in-text":                  {killed},
	"known-prompt-that-had-no-answer": {killed, repeated},
	"plain-compact":                   {silent},
	"plain-fail":                      {silent},
	"plain-hello":                     {silent},
	"plain-interrupt-text":            {silent},
	"plain-parallel":                  {silent},
	"plain-perm-allow":                {silent},
	"plain-perm-deny":                 {silent},
	"plain-resume":                    {silent},
	"plain-subagent":                  {silent},
	"plain-think":                     {silent},
	"plain-tool":                      {silent},
	"without-partial-messages":        {silent},
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
			parsed := parse(t, dir)
			var golden strings.Builder
			for _, l := range lines(parsed) {
				fmt.Fprintln(&golden, l)
			}
			for _, e := range ends {
				fmt.Fprintln(&golden, e)
			}
			file := filepath.Join(dir, "blocks")
			if *update {
				require.NoError(t, os.WriteFile(file, []byte(golden.String()), 0o644))
			}
			want, err := os.ReadFile(file)
			require.NoError(t, err)
			require.Empty(t, cmp.Diff(strings.Split(string(want), "\n"), strings.Split(golden.String(), "\n")), "- golden, + now")

			forgetTimes(parsed, streamed)
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
	in := func(c conversation.Conversation, thread int, id string) bool {
		return thread < len(c.Threads) && slices.ContainsFunc(c.Threads[thread].Blocks, func(b conversation.Block) bool { return b.ID == id })
	}
	switch e {
	case killed:
		return parsed, without(streamed, func(thread int, b conversation.Block) bool {
			return b.Status == conversation.Aborted && !in(parsed, thread, b.ID)
		})
	case silent:
		return without(parsed, func(thread int, b conversation.Block) bool {
			return thread == 0 && b.Type == conversation.UserMessage && !in(streamed, thread, b.ID)
		}), streamed
	case repeated:
		for _, c := range []conversation.Conversation{parsed, streamed} {
			for i := range c.Threads[0].Blocks {
				if b := &c.Threads[0].Blocks[i]; b.Type == conversation.UserMessage {
					b.CreatedAt = time.Time{}
				}
			}
		}
		return parsed, streamed
	}
	panic("unknown exception " + string(e))
}

// forgetTimes blanks the times of blocks whose line in the stream has none.
func forgetTimes(cs ...conversation.Conversation) {
	for _, c := range cs {
		for _, t := range c.Threads {
			for i := range t.Blocks {
				switch t.Blocks[i].Subtype {
				case "retry", "task", "compaction", "notice":
					t.Blocks[i].CreatedAt = time.Time{}
				}
			}
		}
	}
}

func without(c conversation.Conversation, drop func(thread int, b conversation.Block) bool) conversation.Conversation {
	out := conversation.Conversation{}
	for i, t := range c.Threads {
		out.Threads = append(out.Threads, conversation.Thread{
			ID: t.ID, Blocks: slices.DeleteFunc(slices.Clone(t.Blocks), func(b conversation.Block) bool { return drop(i, b) }),
		})
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

// streams are the files of a capture's processes, in order.
func streams(t *testing.T, dir string) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "stdout*.jsonl"))
	require.NoError(t, err)
	slices.SortFunc(names, func(a, b string) int {
		return strings.Compare(strings.TrimSuffix(a, ".jsonl"), strings.TrimSuffix(b, ".jsonl"))
	})
	return names
}

// frames are the lines of a file as a journal has them.
func frames(t *testing.T, name string) []agent.Frame {
	t.Helper()
	data, err := os.ReadFile(name)
	require.NoError(t, err)
	var out []agent.Frame
	for line := range bytes.Lines(data) {
		out = append(out, agent.Frame{No: int64(len(out)), Stream: agent.Stdout, At: begun, Data: bytes.TrimSuffix(line, []byte("\n"))})
	}
	return out
}

// stream folds the streams of a capture and says how its turns ended.
func stream(t *testing.T, dir string) (conversation.Conversation, []string) {
	t.Helper()
	var f conversation.Folder
	var ends []string
	for _, name := range streams(t, dir) {
		tr, err := claude.New().NewTranslator(agent.RunContext{}, nil)
		require.NoError(t, err)
		for _, frame := range frames(t, name) {
			out, err := tr.Translate(frame)
			require.NoError(t, err)
			for _, e := range out.Events {
				f.Add(e)
			}
			if out.End != nil {
				ends = append(ends, fmt.Sprintf("%s:%d %+v", filepath.Base(name), frame.No, *out.End))
				tr, err = claude.New().NewTranslator(agent.RunContext{}, nil)
				require.NoError(t, err)
			}
		}
		for _, e := range tr.Cut(begun) {
			f.Add(e)
		}
	}
	return f.Conversation(), ends
}

func transcript(t *testing.T, dir string) []session.TranscriptFile {
	t.Helper()
	var files []session.TranscriptFile
	root := filepath.Join(dir, "transcript")
	require.NoError(t, filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(name)
		files = append(files, session.TranscriptFile{Path: name, Data: data})
		return err
	}))
	return files
}

func parse(t *testing.T, dir string) conversation.Conversation {
	t.Helper()
	c, err := claude.New().Parse(transcript(t, dir))
	require.NoError(t, err)
	return c
}
