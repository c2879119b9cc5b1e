package chatfile_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/agent/gemini/chatfile"
	"github.com/overwinter-dev/overwinter/internal/transcript"
)

func header(id, kind, second string) string {
	return fmt.Sprintf(`{"sessionId":%q,"startTime":"2026-11-21T00:00:%sZ","kind":%q}`+"\n", id, second, kind)
}

func message(id, rest string) string {
	return fmt.Sprintf(`{"id":%q,"timestamp":"2026-11-21T00:01:00Z","type":"gemini","content":"x"%s}`+"\n", id, rest)
}

// read returns the conversation and the id of each message in files.
func read(t *testing.T, files ...transcript.File) []string {
	t.Helper()
	var chats []chatfile.File
	for _, f := range files {
		c, ok := chatfile.Open(f)
		require.True(t, ok, f.Path)
		chats = append(chats, c)
	}
	var out []string
	for _, s := range chatfile.Read(chats) {
		out = append(out, s.Conversation+" "+s.Message.ID+s.Rewind)
	}
	return out
}

func TestSubagentsFollowTheirCall(t *testing.T) {
	t.Parallel()
	require.Equal(t, []string{"main 1", "sub a", "main 2", "main 3", "other b"}, read(t,
		transcript.File{Path: "/chats/session-2.jsonl", Data: []byte(header("second", "main", "02") + message("3", ""))},
		transcript.File{Path: "/chats/x/other.jsonl", Data: []byte(header("other", "subagent", "03") + message("b", ""))},
		transcript.File{Path: "/chats/x/sub.jsonl", Data: []byte(header("sub", "subagent", "00") + message("a", ""))},
		transcript.File{Path: "/chats/session-1.jsonl", Data: []byte(header("first", "main", "01") +
			message("1", `,"toolCalls":[{"id":"c","agentId":"sub"},{"id":"d","agentId":"sub"}]`) + message("2", ""))}))
}

func TestOnlyMainConversationIsRewound(t *testing.T) {
	t.Parallel()
	const rewind = `{"$rewindTo":"1"}` + "\n"
	require.Equal(t, []string{"main 1", "main 1", "sub a"}, read(t,
		transcript.File{Path: "/chats/session-1.jsonl", Data: []byte(header("first", "main", "01") + message("1", "") + rewind)},
		transcript.File{Path: "/chats/x/sub.jsonl", Data: []byte(header("sub", "subagent", "00") + message("a", "") + rewind)}))
}

func TestMessageWithoutTimeInheritsPrevious(t *testing.T) {
	t.Parallel()
	c, ok := chatfile.Open(transcript.File{Path: "/s.jsonl", Data: []byte(header("s", "main", "01") +
		`{"id":"1","type":"user","content":"x"}` + "\n" + message("2", "") + "no json\n" + `{"id":"3","type":"user"}`)})
	require.True(t, ok)
	var at []string
	for _, s := range chatfile.Read([]chatfile.File{c}) {
		at = append(at, s.At.Format(time.TimeOnly))
	}
	require.Equal(t, []string{"00:00:01", "00:01:00", "00:01:00"}, at)
}

func TestOtherFilesAreRejected(t *testing.T) {
	t.Parallel()
	for _, f := range []transcript.File{
		{Path: "/chats/session-1.txt", Data: []byte(header("s", "main", "01"))},
		{Path: "/overwinter/s.jsonl", Data: []byte(`{"overwinter":{"type":"prompt","runId":"run_1"}}` + "\n" + header("s", "main", "01"))},
		{Path: "/chats/session-1.jsonl", Data: []byte("no json\n{}\n")},
		{Path: "/chats/session-1.jsonl"},
	} {
		_, ok := chatfile.Open(f)
		require.False(t, ok, "%s: %s", f.Path, f.Data)
	}
}
