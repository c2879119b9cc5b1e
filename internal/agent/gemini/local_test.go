package gemini_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/agent/agenttest"
	"github.com/overwinter-dev/overwinter/internal/agent/gemini"
	"github.com/overwinter-dev/overwinter/internal/agent/gemini/geminiformat"
	"github.com/overwinter-dev/overwinter/internal/conversation"
)

const (
	localSession = "bc8046fc-f358-4a68-a981-ec5aef985d8d"
	localContext = `{"id":"c","timestamp":"2026-11-27T03:12:25Z","type":"user","content":[{"text":"<session_context>\nThis is the Gemini CLI.</session_context>"}]}`
	localPrompt  = `{"id":"1","timestamp":"2026-11-27T03:12:25Z","type":"user","content":[{"text":"remember narwhal"}]}`
	localAnswer  = `{"id":"2","timestamp":"2026-11-27T03:12:26Z","type":"gemini","content":"I look.","tokens":{"input":1,"output":1}}`
	localCalled  = `{"id":"2","timestamp":"2026-11-27T03:12:26Z","type":"gemini","content":"I look.","tokens":{"input":1,"output":1},"toolCalls":[{"id":"read_file__1","name":"read_file","args":{},"status":"success","result":[{"functionResponse":{"id":"read_file__1","name":"read_file","response":{"output":"two"}}}]}]}`
	localResult  = `{"id":"3","timestamp":"2026-11-27T03:12:26Z","type":"user","content":[{"functionResponse":{"id":"read_file__1","name":"read_file","response":{"output":"two"}}}]}`
	localEnd     = `{"id":"4","timestamp":"2026-11-27T03:12:27Z","type":"gemini","content":"Two.","tokens":{"input":1,"output":1}}`
	localHeader  = `{"sessionId":"` + localSession + `","projectHash":"x","startTime":"2026-11-27T03:12:25Z","kind":"main"}`
)

// localChat is a chat that the program has loaded once: it writes another header, its context, and
// then all messages again.
var localChat = strings.Join([]string{
	localHeader, `{"$set":{"messages":[` + localContext + `]}}`, localPrompt, localAnswer, localCalled, localResult, localEnd, `{"$set":{"lastUpdated":"x"}}`,
	localHeader, `{"$set":{"messages":[` + localContext + `]}}`,
	`{"$set":{"messages":[` + strings.Join([]string{localContext, localPrompt, localCalled, localResult, localEnd}, ",") + `]}}`,
	`{"id":"5","timestamp":"2026-11-27T03:13:27Z","type":"user","content":[{"text":"<system-reminder>\nmoved\n</system-reminder>again"}]}`, `{"id":"6","type":"gemini","content":"half`,
}, "\n")

func TestChatsBecomeNotebooksAndChats(t *testing.T) {
	t.Parallel()
	const dir = "/home/ada/My Proj_x"
	m := agenttest.Machine(t, map[string]string{
		".gemini/tmp/my-proj-x/.project_root":                                 dir,
		".gemini/tmp/my-proj-x/chats/session-2026-11-27T03-12-bc8046fc.jsonl": localChat,
		".gemini/tmp/my-proj-x/chats/session-2026-11-28T03-12-aaaaaaaa.jsonl": strings.ReplaceAll(localHeader, localSession, "aaaaaaaa-f358-4a68-a981-ec5aef985d8d") + "\n",
		".gemini/tmp/my-proj-x/chats/" + localSession + "/sub.jsonl":          `{"sessionId":"sub","kind":"subagent"}` + "\n" + strings.ReplaceAll(localEnd, "Two.", "Looked.") + "\n",
		".gemini/tmp/other/.project_root":                                     "/home/ada",
		".gemini/tmp/other/chats/session-2026-11-27T03-12-bc8046fc.jsonl":     localChat,
		".gemini/projects.json":                                               `{"projects":{"/home/ada/b":"b"}}`,
	})
	local := gemini.New().Local(m)
	list, err := local.List(t.Context(), dir)
	require.NoError(t, err)
	require.Len(t, list, 1, "one in which nothing was said is none")
	require.Equal(t, localSession, list[0].ID)

	moved, err := local.Pack(t.Context(), dir, localSession)
	require.NoError(t, err)
	launch, err := gemini.New().Launch(agent.LaunchInput{SessionID: moved.MemoryID, Home: "/root", Workspace: "/workspace", Resume: true})
	require.NoError(t, err)
	require.Len(t, moved.Files, 1)
	require.Equal(t, launch.Transcripts[0], moved.Files[0].Path)
	c, err := gemini.New().Parse(moved.Files)
	require.NoError(t, err)
	var said []string
	for _, thread := range c.Threads {
		for _, b := range thread.Blocks {
			said = append(said, thread.ID+" "+string(b.Type)+" "+b.Content+string(b.Output))
		}
	}
	require.Equal(t, []string{
		"main user_message remember narwhal", "main assistant_text I look.", "main tool_use ", `main tool_result "two"`, "main assistant_text Two.",
		"main user_message again", "sub assistant_text Looked.",
	}, said)
	id, memory := geminiformat.ReadNotebook(moved.Files[0].Data)
	require.Equal(t, localSession, id)
	require.Len(t, memory.Messages, 4)
	require.Len(t, memory.Messages[1].Calls, 1, "each call once")

	// The folder of another directory named "b" is not used. The note is only for the model, and is
	// not moved again.
	moved.Note = "now at home"
	id, err = local.Unpack(t.Context(), "/home/ada/c/B", moved)
	require.NoError(t, err)
	require.Equal(t, localSession, id)
	root, err := os.ReadFile(filepath.Join(m.Home, ".gemini/tmp/b-1/.project_root"))
	require.NoError(t, err)
	require.Equal(t, "/home/ada/c/B", string(root))
	chats, err := filepath.Glob(filepath.Join(m.Home, ".gemini/tmp/b-1/chats/*.jsonl"))
	require.NoError(t, err)
	require.Len(t, chats, 1)
	chat, err := os.ReadFile(chats[0])
	require.NoError(t, err)
	lines := strings.Split(strings.TrimSpace(string(chat)), "\n")
	var note geminiformat.Record
	require.True(t, geminiformat.Decode([]byte(lines[len(lines)-1]), &note))
	require.Equal(t, geminiformat.UserRecord, note.Type)
	require.Equal(t, "<system-reminder>\nnow at home\n</system-reminder>", geminiformat.Words(note.Content))
	again, err := local.Pack(t.Context(), "/home/ada/c/B", localSession)
	require.NoError(t, err)
	back, err := gemini.New().Parse(again.Files)
	require.NoError(t, err)
	require.Equal(t, texts(c), texts(back), "there and back is the same conversation")
	_, err = local.Unpack(t.Context(), "/home/ada/c/B", moved)
	require.ErrorContains(t, err, "exists already")

	_, err = local.Pack(t.Context(), "/home/ada/b", localSession)
	require.ErrorContains(t, err, "is not the id of a session")
	moved.Files[0].Data = []byte(`{"overwinter":{"type":"session","id":"../../x"}}` + "\n")
	_, err = local.Unpack(t.Context(), "/home/ada/d", moved)
	require.ErrorIs(t, err, agent.ErrNoMemory)
}

// texts returns the messages with their authors.
func texts(c conversation.Conversation) []string {
	var out []string
	for _, thread := range c.Threads {
		for _, b := range thread.Blocks {
			out = append(out, thread.ID+" "+b.ID+" "+string(b.Type)+" "+b.Content)
		}
	}
	return out
}
