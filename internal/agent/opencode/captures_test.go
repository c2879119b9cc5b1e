package opencode_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/agent/agenttest/capture"
	"github.com/overwinter-dev/overwinter/internal/agent/opencode"
	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/transcript"
)

// TestCaptures reads the output of the real program: its events, and its responses to requests for
// its messages, must give the same blocks. Each capture has a golden file, blocks; rewrite it with
// go test -run Captures -update.
func TestCaptures(t *testing.T) {
	t.Parallel()
	capture.Each(t, "testdata/captures/*", func(t *testing.T, dir string) {
		streamed, ends := stream(t, filepath.Join(dir, "events.sse"))
		parsed := parse(t, filepath.Join(dir, "http.jsonl"))
		capture.Golden(t, filepath.Join(dir, "blocks"), append(capture.Lines(parsed), ends...))
		require.Empty(t, cmp.Diff(capture.Lines(parsed), capture.Lines(streamed)), "- parsed, + streamed")
	})
}

// TestMessageMayBeReportedOnlyWhenItIsComplete simulates a server under load: it encodes an event
// late, so that the first event of an answer may already have its final state.
func TestMessageMayBeReportedOnlyWhenItIsComplete(t *testing.T) {
	t.Parallel()
	dirs, err := filepath.Glob("testdata/captures/*")
	require.NoError(t, err)
	for _, dir := range dirs {
		if filepath.Base(dir) == "queued" {
			continue // a prompt that waits during an answer is shown when the end of the answer is reported
		}
		t.Run(filepath.Base(dir), func(t *testing.T) {
			t.Parallel()
			reported := capture.Frames(t, filepath.Join(dir, "events.sse"))
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
			for _, f := range reported {
				last[id(f)] = f.Data
			}
			late := 0
			for i, f := range reported {
				if message := id(f); message != "" {
					reported[i].Data = last[message]
					late++
				}
			}
			require.Positive(t, late)
			streamed, _ := capture.Fold(t, opencode.New(), reported)
			require.Empty(t, cmp.Diff(capture.Lines(parse(t, filepath.Join(dir, "http.jsonl"))), capture.Lines(streamed)), "- parsed, + streamed")
		})
	}
}

// TestRunsOfCommandLine compares the output of opencode run with the export of its session,
// which also contains the prompt.
func TestRunsOfCommandLine(t *testing.T) {
	t.Parallel()
	dirs, err := filepath.Glob("testdata/run/*")
	require.NoError(t, err)
	require.NotEmpty(t, dirs)
	for _, dir := range dirs {
		streamed, _ := stream(t, filepath.Join(dir, "stdout.jsonl"))
		parsed := parse(t, filepath.Join(dir, "export.json"))
		require.Equal(t, conversation.UserMessage, parsed.Threads[0].Blocks[0].Type)
		parsed.Threads[0].Blocks = parsed.Threads[0].Blocks[1:]
		require.Empty(t, cmp.Diff(capture.Lines(parsed), capture.Lines(streamed)), "- parsed, + streamed")
	}
}

func TestErrorOfCommandLineIsShown(t *testing.T) {
	t.Parallel()
	c, ends := capture.Fold(t, opencode.New(), []agent.Frame{{Stream: agent.Stdout, At: capture.Begun, Data: []byte(
		`{"type":"error","timestamp":1795262646461,"sessionID":"ses_1","error":{"name":"APIError","data":{"message":"no such model"}}}`)}})
	require.Len(t, c.Threads[0].Blocks, 1)
	require.Equal(t, "no such model", c.Threads[0].Blocks[0].Message)
	require.Equal(t, "error", c.Threads[0].Blocks[0].Subtype)
	require.Len(t, ends, 1)
}

func parse(t *testing.T, names ...string) conversation.Conversation {
	t.Helper()
	var files []transcript.File
	for _, name := range names {
		data, err := os.ReadFile(name)
		require.NoError(t, err)
		files = append(files, transcript.File{Path: name, Data: data})
	}
	c, err := opencode.New().Parse(files)
	require.NoError(t, err)
	return c
}

// stream folds a captured stream and returns how its turns ended.
func stream(t *testing.T, name string) (conversation.Conversation, []string) {
	t.Helper()
	return capture.Fold(t, opencode.New(), capture.Frames(t, name))
}
