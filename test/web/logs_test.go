package web

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/agent/acp"
	"github.com/overwinter-dev/overwinter/internal/agent/agenttest/capture"
	"github.com/overwinter-dev/overwinter/internal/agent/claude"
	"github.com/overwinter-dev/overwinter/internal/agent/codex"
	"github.com/overwinter-dev/overwinter/internal/agent/gemini"
	"github.com/overwinter-dev/overwinter/internal/agent/opencode"
	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/event"
)

// logged is an event of a log, as clients get it.
type logged struct {
	Seq            int             `json:"seq"`
	Type           string          `json:"type"`
	ConversationID string          `json:"conversationId,omitempty"`
	Data           json.RawMessage `json:"data"`
}

// writeLogs writes the event log of every recording of every agent, and what the server's fold makes of it.
func writeLogs(t *testing.T, dir string) {
	t.Helper()
	const agents = "../../internal/agent/"
	for folder, a := range map[string]agent.Adapter{
		"acp": acp.New(), "claude": claude.New(), "codex": codex.New(), "gemini": gemini.New(), "opencode": opencode.New(),
	} {
		captures, err := filepath.Glob(agents + folder + "/testdata/captures/*")
		require.NoError(t, err)
		require.NotEmpty(t, captures)
		for _, c := range captures {
			streams := capture.Streams(t, c)
			if _, err := os.Stat(filepath.Join(c, "events.sse")); err == nil {
				streams = []string{filepath.Join(c, "events.sse")}
			}
			var log []logged
			for _, name := range streams {
				log = append(log, translated(t, a, name)...)
			}
			writeLog(t, filepath.Join(dir, folder+"-"+filepath.Base(c)), log)
		}
	}
	scripts, err := filepath.Glob(agents + "demo/testdata/*/events")
	require.NoError(t, err)
	require.NotEmpty(t, scripts)
	for _, name := range scripts {
		writeLog(t, filepath.Join(dir, "demo-"+filepath.Base(filepath.Dir(name))), golden(t, name))
	}
	sessions, err := filepath.Glob("../../internal/terminal/testdata/*.ndjson")
	require.NoError(t, err)
	require.NotEmpty(t, sessions)
	for _, name := range sessions {
		writeLog(t, filepath.Join(dir, "session-"+filepath.Base(name)), session(t, name))
	}
}

// translated is the log of one process of an agent.
func translated(t *testing.T, a agent.Adapter, name string) (log []logged) {
	t.Helper()
	capture.Events(t, a, capture.Frames(t, name), func(events []conversation.Event) {
		for _, e := range events {
			if viewer, ok := a.(agent.Viewer); ok {
				e = conversation.WithTool(e, viewer.Tool)
			}
			e = conversation.InRun(e, "run_1")
			data, err := conversation.Encode(e.Data)
			require.NoError(t, err)
			log = append(log, logged{Type: string(e.Type), ConversationID: e.ConversationID, Data: data})
		}
	})
	return log
}

// golden is the log in a golden file of the demo agent: time, type, conversation and data on each line.
func golden(t *testing.T, name string) (log []logged) {
	t.Helper()
	text, err := os.ReadFile(name)
	require.NoError(t, err)
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		at := strings.IndexByte(line, '{')
		require.Positive(t, at, line)
		fields := strings.Fields(line[:at])
		require.GreaterOrEqual(t, len(fields), 2, line)
		e := logged{Type: fields[1], Data: json.RawMessage(strings.TrimSpace(line[at:]))}
		if len(fields) > 2 {
			e.ConversationID = fields[2]
		}
		log = append(log, e)
	}
	return log
}

// session is the log of a session, as `overwinter session follow -o json` prints it.
func session(t *testing.T, name string) (log []logged) {
	t.Helper()
	text, err := os.ReadFile(name)
	require.NoError(t, err)
	for line := range bytes.Lines(text) {
		var e event.JSON
		require.NoError(t, json.Unmarshal(line, &e))
		if e.Seq > 0 {
			log = append(log, logged{Type: e.Type, ConversationID: e.ConversationID, Data: e.Data})
		}
	}
	return log
}

func writeLog(t *testing.T, name string, log []logged) {
	t.Helper()
	var f conversation.Folder
	var text bytes.Buffer
	for i, e := range log {
		e.Seq = i + 1
		line, err := conversation.Encode(e)
		require.NoError(t, err)
		text.Write(append(line, '\n'))
		require.NoError(t, f.Apply(conversation.EventType(e.Type), e.ConversationID, e.Data))
	}
	blocks, err := json.Marshal(f.Conversation().Threads)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(name+".events", text.Bytes(), 0o644))
	require.NoError(t, os.WriteFile(name+".blocks", blocks, 0o644))
}
