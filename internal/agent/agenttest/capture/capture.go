// Package capture contains helpers for the golden tests and the fuzz tests of adapters. A capture
// is a directory with the output of a real program: its stream and its transcript files. Both must
// give the same blocks.
package capture

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
	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/transcript"
)

var update = flag.Bool("update", false, "rewrite the golden files in testdata")

// Begun is the time of every frame in a capture.
var Begun = time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)

// Each runs a test for every directory that matches the pattern. At least one must match.
func Each(t *testing.T, pattern string, test func(t *testing.T, dir string)) {
	t.Helper()
	dirs, err := filepath.Glob(pattern)
	require.NoError(t, err)
	require.NotEmpty(t, dirs)
	for _, dir := range dirs {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			t.Parallel()
			test(t, dir)
		})
	}
}

// Golden compares lines with a file, which go test -update rewrites.
func Golden(t *testing.T, file string, got []string) {
	t.Helper()
	text := strings.Join(got, "\n") + "\n"
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(text), 0o644))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Empty(t, cmp.Diff(strings.Split(string(want), "\n"), strings.Split(text, "\n")), "- golden, + now")
}

// Same requires the same blocks from the transcript and from the stream after applying the
// exceptions. Each exception must make a difference.
func Same[E ~string](t *testing.T, parsed, streamed conversation.Conversation, exceptions []E,
	except func(e E, parsed, streamed conversation.Conversation) (p, s conversation.Conversation),
) {
	t.Helper()
	for _, e := range exceptions {
		before := cmp.Diff(Lines(parsed), Lines(streamed))
		parsed, streamed = except(e, parsed, streamed)
		require.NotEqual(t, before, cmp.Diff(Lines(parsed), Lines(streamed)), "no exception: %s", e)
	}
	require.Empty(t, cmp.Diff(Lines(parsed), Lines(streamed)), "- parsed, + streamed")
}

// Lines returns the blocks of a conversation, one per line.
func Lines(c conversation.Conversation) []string {
	var out []string
	for _, t := range c.Threads {
		out = append(out, "# "+t.ID)
		for _, b := range t.Blocks {
			data, err := json.Marshal(b)
			if err != nil {
				panic(err) // a block that cannot be encoded
			}
			out = append(out, string(data))
		}
	}
	return out
}

// Without returns a conversation without the blocks that chosen selects.
func Without(c conversation.Conversation, chosen func(thread int, b conversation.Block) bool) conversation.Conversation {
	out := conversation.Conversation{}
	for i, t := range c.Threads {
		out.Threads = append(out.Threads, conversation.Thread{
			ID: t.ID, Blocks: slices.DeleteFunc(slices.Clone(t.Blocks), func(b conversation.Block) bool { return chosen(i, b) }),
		})
	}
	return out
}

// Frames returns the lines of a file as the frames of a journal.
func Frames(t testing.TB, name string) []agent.Frame {
	t.Helper()
	data, err := os.ReadFile(name)
	require.NoError(t, err)
	return Journal(data)
}

// Journal returns lines as the frames of a journal.
func Journal(data []byte) []agent.Frame {
	var out []agent.Frame
	for line := range bytes.Lines(data) {
		out = append(out, agent.Frame{No: int64(len(out)), Stream: agent.Stdout, At: Begun, Data: bytes.TrimSuffix(line, []byte("\n"))})
	}
	return out
}

// Streams returns the streams of a capture's processes, in order.
func Streams(t testing.TB, dir string) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "stdout*.jsonl"))
	require.NoError(t, err)
	slices.SortFunc(names, func(a, b string) int {
		return strings.Compare(strings.TrimSuffix(a, ".jsonl"), strings.TrimSuffix(b, ".jsonl"))
	})
	return names
}

// Events translates the frames of one process, passes the events of each frame on, and returns the
// frames that ended turns with their ends.
func Events(t testing.TB, a agent.Adapter, frames []agent.Frame, each func([]conversation.Event)) []string {
	t.Helper()
	var ends []string
	tr, err := a.NewTranslator(agent.RunContext{}, nil)
	require.NoError(t, err)
	pictures := map[string]bool{}
	for _, frame := range frames {
		out, err := tr.Translate(frame)
		require.NoError(t, err)
		for _, i := range out.Images {
			pictures[i.ID] = true
		}
		for _, e := range out.Events {
			if d, ok := e.Data.(conversation.BlockComplete); ok {
				for _, i := range d.Block.Images {
					require.True(t, pictures[i.ID], "the translator has not handed over image %s of block %s", i.ID, d.Block.ID)
				}
			}
		}
		each(out.Events)
		if out.End != nil {
			ends = append(ends, fmt.Sprintf("%d %s", frame.No, endLine(*out.End)))
			tr, err = agent.NextTurn(a, tr)
			require.NoError(t, err)
		}
	}
	each(tr.Cut(Begun))
	return ends
}

// Fold folds the frames of one process and returns how its turns ended.
func Fold(t testing.TB, a agent.Adapter, frames []agent.Frame) (conversation.Conversation, []string) {
	t.Helper()
	var f conversation.Folder
	ends := Events(t, a, frames, adder(&f))
	return f.Conversation(), ends
}

// FoldStreams folds the streams of all processes of a capture, and names the file with each end.
func FoldStreams(t testing.TB, a agent.Adapter, dir string) (conversation.Conversation, []string) {
	t.Helper()
	var f conversation.Folder
	var ends []string
	for _, name := range Streams(t, dir) {
		for _, end := range Events(t, a, Frames(t, name), adder(&f)) {
			ends = append(ends, filepath.Base(name)+":"+end)
		}
	}
	return f.Conversation(), ends
}

func adder(f *conversation.Folder) func([]conversation.Event) {
	return func(events []conversation.Event) {
		for _, e := range events {
			f.Add(e)
		}
	}
}

// Benchmark translates the lines of a process repeatedly.
func Benchmark(b *testing.B, a agent.Adapter, data []byte) {
	b.Helper()
	all := Journal(data)
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		Events(b, a, all, func([]conversation.Event) {})
	}
}

// Transcript reads the transcript files of a capture.
func Transcript(t testing.TB, dir string) []transcript.File {
	t.Helper()
	var files []transcript.File
	require.NoError(t, filepath.WalkDir(filepath.Join(dir, "transcript"), func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(name)
		files = append(files, transcript.File{Path: name, Data: data})
		return err
	}))
	return files
}

// Parse parses transcript files.
func Parse(t testing.TB, a agent.Adapter, files []transcript.File) conversation.Conversation {
	t.Helper()
	c, err := a.Parse(files)
	require.NoError(t, err)
	return c
}

// endLine formats the end of a turn for golden files.
func endLine(e agent.TurnEnd) string {
	line := fmt.Sprintf("{Outcome:%s Reason:%s Usage:%+v Model:%s", e.Outcome, e.Reason, e.Usage, e.Model)
	if e.Unauthorized != nil {
		line += fmt.Sprintf(" Unauthorized:%+v", *e.Unauthorized)
	}
	return line + "}"
}
