package web

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/test/recorded"
)

// logged is an event of a log, as clients get it.
type logged struct {
	Seq            int             `json:"seq"`
	Type           string          `json:"type"`
	ConversationID string          `json:"conversationId,omitempty"`
	Data           json.RawMessage `json:"data"`
}

// writeLogs writes the event log of every recording of every agent, and the result of the server's
// fold.
func writeLogs(t *testing.T, dir string) {
	t.Helper()
	for name, log := range recorded.Logs(t, "../..") {
		writeLog(t, filepath.Join(dir, name), log)
	}
}

func writeLog(t *testing.T, name string, log []recorded.Event) {
	t.Helper()
	var f conversation.Folder
	var text bytes.Buffer
	for i, e := range log {
		line, err := conversation.Encode(logged{i + 1, e.Type, e.ConversationID, e.Data})
		require.NoError(t, err)
		text.Write(append(line, '\n'))
		require.NoError(t, f.Apply(conversation.EventType(e.Type), e.ConversationID, e.Data))
	}
	blocks, err := json.Marshal(f.Conversation().Threads)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(name+".events", text.Bytes(), 0o644))
	require.NoError(t, os.WriteFile(name+".blocks", blocks, 0o644))
}
