package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/conversation"
)

const (
	claudeCaptures = "../../internal/agent/claude/testdata/captures"
	demoCaptures   = "../../internal/agent/demo/testdata"
)

// fold runs transcript fold over lines.
func fold(t *testing.T, lines string) result {
	t.Helper()
	var stdout, stderr bytes.Buffer
	p := program{args: []string{"transcript", "fold"}, stdin: strings.NewReader(lines), stdout: &stdout, stderr: &stderr}
	code := p.Run(t.Context())
	return result{code: code, stdout: stdout.String(), stderr: stderr.String()}
}

// ids returns the conversations in the output of a command, without times.
func ids(t *testing.T, printed string) []string {
	t.Helper()
	var c conversation.Conversation
	require.NoError(t, json.Unmarshal([]byte(printed), &c))
	var out []string
	for _, thread := range c.Threads {
		for _, b := range thread.Blocks {
			out = append(out, strings.Join([]string{
				thread.ID, b.ID, string(b.Type), string(b.Status), b.Content, b.Message, string(b.Input), string(b.Output), b.SubagentID,
			}, " "))
		}
	}
	return out
}

func TestTranscriptsAndStreamsGiveSameBlocks(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"two-subagents", "compacted", "interrupted-in-a-tool", "message-while-a-tool-runs", "one-text-and-thinking"} {
		dir := filepath.Join(claudeCaptures, name)
		events := run(t.Context(), "transcript", "events", "--agent=claude-sdk", filepath.Join(dir, "stdout.jsonl"))
		require.Equal(t, exitDone, events.code, events.stderr)
		folded := fold(t, events.stdout)
		require.Equal(t, exitDone, folded.code, folded.stderr)
		blocks := run(t.Context(), "transcript", "blocks", "--agent=claude-sdk", filepath.Join(dir, "transcript"))
		require.Equal(t, exitDone, blocks.code, blocks.stderr)
		require.NotEmpty(t, ids(t, blocks.stdout))
		require.Equal(t, ids(t, blocks.stdout), ids(t, folded.stdout), name)

		all := run(t.Context(), "transcript", "blocks", "--agent=claude-sdk", dir)
		require.Equal(t, blocks.stdout, all.stdout, "a stream is not a transcript")
		main, err := filepath.Glob(filepath.Join(dir, "transcript", "*.jsonl"))
		require.NoError(t, err)
		one := run(t.Context(), "transcript", "blocks", "--agent=claude-sdk", main[0])
		require.Equal(t, blocks.stdout, one.stdout, "a file has its subagents next to it")
	}
}

func TestStreamOfManyTurnsIsReadToItsEnd(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"hello", "subagent", "tools", "failed"} {
		events := run(t.Context(), "transcript", "events", "--agent=demo", filepath.Join(demoCaptures, name, "stream.jsonl"))
		require.Equal(t, exitDone, events.code, events.stderr)
		want, err := os.ReadFile(filepath.Join(demoCaptures, name, "conversation"))
		require.NoError(t, err)
		require.Equal(t, ids(t, string(compact(t, want))), ids(t, fold(t, events.stdout).stdout), name)
	}
}

func compact(t *testing.T, data []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, json.Compact(&b, data))
	return b.Bytes()
}

func TestOpenBlocksAreAbortedAtStreamEnd(t *testing.T) {
	t.Parallel()
	events := run(t.Context(), "transcript", "events", "--agent=claude-sdk", filepath.Join(claudeCaptures, "killed-in-a-tool", "stdout.jsonl"))
	require.Equal(t, exitDone, events.code, events.stderr)
	got := ids(t, fold(t, events.stdout).stdout)
	require.Contains(t, got[len(got)-1], " aborted ")
}

func TestFoldReadsEventsAsAPISendsThem(t *testing.T) {
	t.Parallel()
	r := fold(t, `{"seq":1,"type":"status","sessionId":"ses_1","at":"2026-01-01T00:00:00Z","data":{"status":"running"}}

{"seq":2,"type":"block_start","sessionId":"ses_1","conversationId":"main","runId":"run_1","at":"2026-01-01T00:00:00Z","data":{"block":{"id":"a","type":"assistant_text","status":"streaming","createdAt":"2026-01-01T00:00:00Z","content":""}}}
{"seq":3,"type":"text_delta","conversationId":"main","at":"2026-01-01T00:00:00Z","data":{"blockId":"a","delta":"hi"}}`)
	require.Equal(t, exitDone, r.code, r.stderr)
	require.JSONEq(t, `{"conversations":[{"id":"main","blocks":[{"id":"a","type":"assistant_text","status":"streaming","createdAt":"2026-01-01T00:00:00.000Z","content":"hi"}]}]}`, r.stdout)
}

func TestTranscriptCommandErrors(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		args []string
		code int
		want string
	}{
		"unknown agent": {[]string{"transcript", "blocks", "--agent=unknown", "."}, exitUsage, "unknown"},
		"no agent":      {[]string{"transcript", "events", "x"}, exitUsage, "--agent"},
		"no file":       {[]string{"transcript", "events", "--agent=demo", "testdata/none"}, exitFailed, "none"},
		"no directory":  {[]string{"transcript", "blocks", "--agent=demo", "testdata/none"}, exitFailed, "none"},
	} {
		r := run(t.Context(), c.args...)
		require.Equal(t, c.code, r.code, name)
		require.Contains(t, r.stderr, c.want, name)
		require.Empty(t, r.stdout, name)
	}
	r := fold(t, "{}\nnonsense")
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.stderr, "line 2")
	r = fold(t, `{"type":"block_start","data":7}`)
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.stderr, "line 1")
}
