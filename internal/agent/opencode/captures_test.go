package opencode_test

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
	"github.com/overwinter-dev/overwinter/internal/agent/opencode"
	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/session"
)

var update = flag.Bool("update", false, "rewrite the golden files in testdata")

// begun is the time of every frame that is read from a capture.
var begun = time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)

// TestCaptures reads what the real program said: its events and what it answered when it was asked
// for its messages must give the same blocks. Each capture has a golden file, blocks, rewritten with
// go test -run Captures -update.
func TestCaptures(t *testing.T) {
	t.Parallel()
	dirs, err := filepath.Glob("testdata/captures/*")
	require.NoError(t, err)
	require.NotEmpty(t, dirs)
	for _, dir := range dirs {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			t.Parallel()
			streamed, ends := stream(t, filepath.Join(dir, "events.sse"))
			parsed := parse(t, filepath.Join(dir, "http.jsonl"))
			golden := strings.Join(append(lines(parsed), ends...), "\n") + "\n"
			file := filepath.Join(dir, "blocks")
			if *update {
				require.NoError(t, os.WriteFile(file, []byte(golden), 0o644))
			}
			want, err := os.ReadFile(file)
			require.NoError(t, err)
			require.Empty(t, cmp.Diff(strings.Split(string(want), "\n"), strings.Split(golden, "\n")), "- golden, + now")
			require.Empty(t, cmp.Diff(lines(parsed), lines(streamed)), "- parsed, + streamed")
		})
	}
}

// TestAMessageMayBeToldAsItIsInTheEnd holds the translator to what the server does under load: it
// writes an event down late, so that the first word of an answer may be what the last one is.
func TestAMessageMayBeToldAsItIsInTheEnd(t *testing.T) {
	t.Parallel()
	dirs, err := filepath.Glob("testdata/captures/*")
	require.NoError(t, err)
	for _, dir := range dirs {
		if filepath.Base(dir) == "queued" {
			continue // where a prompt waits for an answer, it is the answer's end that says so
		}
		t.Run(filepath.Base(dir), func(t *testing.T) {
			t.Parallel()
			told := frames(t, filepath.Join(dir, "events.sse"))
			last := map[string][]byte{}
			id := func(f agent.Frame) string {
				var e struct {
					Type       string
					Properties struct{ Info struct{ ID, Role string } }
				}
				data, _ := bytes.CutPrefix(f.Data, []byte("data: "))
				if json.Unmarshal(data, &e) != nil || e.Type != "message.updated" || e.Properties.Info.Role != "assistant" {
					return ""
				}
				return e.Properties.Info.ID
			}
			for _, f := range told {
				last[id(f)] = f.Data
			}
			late := 0
			for i, f := range told {
				if message := id(f); message != "" {
					told[i].Data = last[message]
					late++
				}
			}
			require.Positive(t, late)
			streamed, _ := fold(t, told)
			require.Empty(t, cmp.Diff(lines(parse(t, filepath.Join(dir, "http.jsonl"))), lines(streamed)), "- parsed, + streamed")
		})
	}
}

// TestRunsOfTheCommandLine holds what opencode run prints to the export of its session, which has the
// prompt as well.
func TestRunsOfTheCommandLine(t *testing.T) {
	t.Parallel()
	dirs, err := filepath.Glob("testdata/run/*")
	require.NoError(t, err)
	require.NotEmpty(t, dirs)
	for _, dir := range dirs {
		streamed, _ := stream(t, filepath.Join(dir, "stdout.jsonl"))
		parsed := parse(t, filepath.Join(dir, "export.json"))
		require.Equal(t, conversation.UserMessage, parsed.Threads[0].Blocks[0].Type)
		parsed.Threads[0].Blocks = parsed.Threads[0].Blocks[1:]
		require.Empty(t, cmp.Diff(lines(parsed), lines(streamed)), "- parsed, + streamed")
	}
}

func TestAnErrorOfTheCommandLineIsShown(t *testing.T) {
	t.Parallel()
	c, ends := fold(t, []agent.Frame{{Stream: agent.Stdout, At: begun, Data: []byte(
		`{"type":"error","timestamp":1795262646461,"sessionID":"ses_1","error":{"name":"APIError","data":{"message":"no such model"}}}`)}})
	require.Len(t, c.Threads[0].Blocks, 1)
	require.Equal(t, "no such model", c.Threads[0].Blocks[0].Message)
	require.Equal(t, "error", c.Threads[0].Blocks[0].Subtype)
	require.Len(t, ends, 1)
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

// stream folds a captured stream and says how its turns ended.
func stream(t *testing.T, name string) (conversation.Conversation, []string) {
	t.Helper()
	return fold(t, frames(t, name))
}

// fold folds frames.
func fold(t *testing.T, frames []agent.Frame) (conversation.Conversation, []string) {
	t.Helper()
	var f conversation.Folder
	var ends []string
	tr, err := opencode.New().NewTranslator(agent.RunContext{}, nil)
	require.NoError(t, err)
	for _, frame := range frames {
		out, err := tr.Translate(frame)
		require.NoError(t, err)
		for _, e := range out.Events {
			f.Add(e)
		}
		if out.End != nil {
			ends = append(ends, fmt.Sprintf("%d %+v", frame.No, *out.End))
			tr, err = agent.NextTurn(opencode.New(), tr)
			require.NoError(t, err)
		}
	}
	for _, e := range tr.Cut(begun) {
		f.Add(e)
	}
	return f.Conversation(), ends
}

func parse(t *testing.T, names ...string) conversation.Conversation {
	t.Helper()
	var files []session.TranscriptFile
	for _, name := range names {
		data, err := os.ReadFile(name)
		require.NoError(t, err)
		files = append(files, session.TranscriptFile{Path: name, Data: data})
	}
	c, err := opencode.New().Parse(files)
	require.NoError(t, err)
	return c
}
