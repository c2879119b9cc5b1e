package recorded

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

// Event is an event of a log that has no position yet.
type Event struct {
	Type           string
	ConversationID string
	Data           json.RawMessage
}

// Logs returns the log of every recording of every agent, of every script of the demo agent, and of some sessions, by name. root is
// the path to the repository.
func Logs(t *testing.T, root string) map[string][]Event {
	t.Helper()
	logs := map[string][]Event{}
	for folder, a := range map[string]agent.Adapter{
		"acp": acp.New(), "claude": claude.New(), "codex": codex.New(), "gemini": gemini.New(), "opencode": opencode.New(),
	} {
		for _, c := range found(t, root, "internal/agent", folder, "testdata/captures/*") {
			streams := capture.Streams(t, c)
			if _, err := os.Stat(filepath.Join(c, "events.sse")); err == nil {
				streams = []string{filepath.Join(c, "events.sse")}
			}
			name := folder + "-" + filepath.Base(c)
			for _, stream := range streams {
				logs[name] = append(logs[name], translated(t, a, stream)...)
			}
		}
	}
	for _, name := range found(t, root, "internal/agent/demo/testdata/*/events") {
		logs["demo-"+filepath.Base(filepath.Dir(name))] = golden(t, name)
	}
	for _, name := range found(t, root, "internal/terminal/testdata/*.ndjson") {
		logs["session-"+filepath.Base(name)] = session(t, name)
	}
	return logs
}

// found returns the files that match a pattern, at least one.
func found(t *testing.T, pattern ...string) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(pattern...))
	require.NoError(t, err)
	require.NotEmpty(t, names)
	return names
}

// translated returns the log of one process of an agent.
func translated(t *testing.T, a agent.Adapter, name string) (log []Event) {
	t.Helper()
	capture.Events(t, a, capture.Frames(t, name), func(events []conversation.Event) {
		for _, e := range events {
			if viewer, ok := a.(agent.Viewer); ok {
				e = conversation.WithTool(e, viewer.Tool)
			}
			e = conversation.InRun(e, "run_1")
			data, err := conversation.Encode(e.Data)
			require.NoError(t, err)
			log = append(log, Event{Type: string(e.Type), ConversationID: e.ConversationID, Data: data})
		}
	})
	return log
}

// golden reads the log in a golden file of the demo agent: time, type, conversation and data on
// each line.
func golden(t *testing.T, name string) (log []Event) {
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
		e := Event{Type: fields[1], Data: json.RawMessage(strings.TrimSpace(line[at:]))}
		if len(fields) > 2 {
			e.ConversationID = fields[2]
		}
		log = append(log, e)
	}
	return log
}

// session reads the log of a session, in the format of `overwinter session follow -o json`.
func session(t *testing.T, name string) (log []Event) {
	t.Helper()
	text, err := os.ReadFile(name)
	require.NoError(t, err)
	for line := range bytes.Lines(text) {
		var e event.JSON
		require.NoError(t, json.Unmarshal(line, &e))
		if e.Seq > 0 {
			log = append(log, Event{Type: e.Type, ConversationID: e.ConversationID, Data: e.Data})
		}
	}
	return log
}
