package gemini_test

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
	"github.com/overwinter-dev/overwinter/internal/agent/gemini"
	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/session"
)

var update = flag.Bool("update", false, "rewrite the golden files in testdata")

// begun is the time of every frame that is read from a capture.
var begun = time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)

// TestCaptures reads what the real program wrote: with the bridge (bridge-*), over ACP alone (acp-*),
// and as stream-json (native-*). Each capture has golden files, blocks of its transcript and
// streamed of its stream, rewritten with go test -run Captures -update. The bridge's streams give
// the blocks of their transcripts; the others have in common with theirs what the documentation says.
func TestCaptures(t *testing.T) {
	t.Parallel()
	dirs, err := filepath.Glob("testdata/captures/*")
	require.NoError(t, err)
	require.NotEmpty(t, dirs)
	for _, dir := range dirs {
		name := filepath.Base(dir)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			parsed := parse(t, dir)
			streamed, ends := stream(t, dir)
			golden(t, filepath.Join(dir, "blocks"), lines(parsed))
			golden(t, filepath.Join(dir, "streamed"), append(lines(streamed), ends...))
			if strings.HasPrefix(name, "bridge-") {
				parsed, streamed = withoutAborted(parsed, name), withoutAborted(streamed, name)
				require.Empty(t, cmp.Diff(lines(parsed), lines(streamed)), "- parsed, + streamed")
				return
			}
			if strings.HasSuffix(name, "load") || strings.HasSuffix(name, "resume") {
				return // several streams of one session, which repeat its past
			}
			require.Empty(t, cmp.Diff(said(parsed), said(streamed)), "- parsed, + streamed")
		})
	}
}

// withoutAborted leaves out what was streaming when the process was killed.
func withoutAborted(c conversation.Conversation, name string) conversation.Conversation {
	if !strings.Contains(name, "killed") {
		return c
	}
	for i, thread := range c.Threads {
		c.Threads[i].Blocks = slices.DeleteFunc(thread.Blocks, func(b conversation.Block) bool {
			return b.Type == conversation.AssistantText && b.Status == conversation.Aborted
		})
	}
	return c
}

// said is what a stream without the bridge has in common with its transcript: what was answered, and
// the calls with what became of them.
func said(c conversation.Conversation) []string {
	var out []string
	for _, b := range c.Threads[0].Blocks {
		switch {
		case b.Status == conversation.Aborted:
		case b.Type == conversation.AssistantText:
			out = append(out, b.Content)
		case b.Type == conversation.ToolUse, b.Type == conversation.Subagent:
			out = append(out, fmt.Sprintf("%s %s %s", b.ID, b.Name, b.Status))
		case b.Type == conversation.ToolResult:
			out = append(out, fmt.Sprintf("%s %s %t", b.ID, b.ToolUseID, b.IsError))
		}
	}
	return out
}

func golden(t *testing.T, file string, got []string) {
	t.Helper()
	text := strings.Join(got, "\n") + "\n"
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(text), 0o644))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Empty(t, cmp.Diff(strings.Split(string(want), "\n"), strings.Split(text, "\n")), "- golden, + now")
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
	names, err := filepath.Glob(filepath.Join(dir, "stdout*.jsonl"))
	require.NoError(t, err)
	slices.SortFunc(names, func(a, b string) int {
		return strings.Compare(strings.TrimSuffix(a, ".jsonl"), strings.TrimSuffix(b, ".jsonl"))
	})
	var f conversation.Folder
	var ends []string
	for _, name := range names {
		tr, err := gemini.New().NewTranslator(agent.RunContext{}, nil)
		require.NoError(t, err)
		for _, frame := range frames(t, name) {
			out, err := tr.Translate(frame)
			require.NoError(t, err)
			for _, e := range out.Events {
				f.Add(e)
			}
			if out.End != nil {
				ends = append(ends, fmt.Sprintf("%s:%d %+v", filepath.Base(name), frame.No, *out.End))
				tr, err = gemini.New().NewTranslator(agent.RunContext{}, nil)
				require.NoError(t, err)
			}
		}
		for _, e := range tr.Cut(begun) {
			f.Add(e)
		}
	}
	return f.Conversation(), ends
}

func parse(t *testing.T, dir string) conversation.Conversation {
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
	c, err := gemini.New().Parse(files)
	require.NoError(t, err)
	return c
}
