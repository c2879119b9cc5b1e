package uistream

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/agui"
	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/eventlog"
)

// aguiStream is the stream of a run that a client begins after a number of events of a log, and the
// number of its snapshots.
func aguiStream(t *testing.T, log []eventlog.Event, attach int) (sse []byte, snapshots int) {
	t.Helper()
	e := agui.NewEncoder("ses_1", "r1", "p1")
	sse = agui.AppendSSE(nil, e.Start())
	var folder conversation.Folder
	snapshot := func() {
		snapshots++
		sse = append(sse, e.Snapshot(snapshotOf(folder.Conversation()))...)
	}
	for i, ev := range log {
		if i == attach {
			snapshot()
		}
		require.NoError(t, folder.Apply(conversation.EventType(ev.Type), ev.ConversationID, ev.Data))
		if i < attach {
			continue
		}
		events, err := e.Next(ev)
		require.NoError(t, err)
		sse = agui.AppendSSE(sse, events)
		if e.Stale() {
			snapshot()
		}
	}
	require.True(t, e.Complete())
	return sse, snapshots
}

func snapshotOf(c conversation.Conversation) *agui.Snapshot {
	s := agui.NewSnapshot("p1", 0)
	for _, thread := range c.Threads {
		for _, b := range thread.Blocks {
			s.Add(thread.ID, b)
		}
	}
	s.AddPrompt("hello", false)
	return s
}

// TestRecordedStreamsOfAGUI makes the verifier and the agent of AG-UI read the streams of all
// recorded turns, from their start and from the middle. At the end all of them must have the
// messages of the conversation.
func TestRecordedStreamsOfAGUI(t *testing.T) {
	t.Parallel()
	dir := workspace(t)
	var again []string // logs with calls whose name changes after they are shown
	for name, log := range recordedLogs(t) {
		var folder conversation.Folder
		removed := 0
		for _, ev := range log {
			require.NoError(t, folder.Apply(conversation.EventType(ev.Type), ev.ConversationID, ev.Data))
			if ev.Type == string(conversation.EventBlockRemoved) {
				removed++
			}
		}
		// Blocks that are open at the end of the turn are closed by the run.
		ended := folder.Conversation()
		for _, thread := range ended.Threads {
			for i := range thread.Blocks {
				if thread.Blocks[i].Status.Open() && thread.Blocks[i].Type != conversation.ToolResult {
					thread.Blocks[i].Status = conversation.Complete
				}
			}
		}
		e := agui.NewEncoder("ses_1", "r1", "p1")
		require.NoError(t, os.WriteFile(filepath.Join(dir, name+".want"), e.Snapshot(snapshotOf(ended)), 0o644))
		for part := range 4 {
			sse, snapshots := aguiStream(t, log, part*len(log)/4)
			if part == 0 && snapshots > 1+removed { // a call that runs when a client attaches may have a provisional input
				again = append(again, name)
			}
			require.NoError(t, os.WriteFile(filepath.Join(dir, fmt.Sprintf("%s.%d.agui", name, part)), sse, 0o644))
		}
	}
	require.LessOrEqual(t, len(again), 4, "what adapters report needs many snapshots: %v", again)
	out := node(t, dir, "recorded-agui.mjs")
	var counts struct{ Streams, Snapshots, Subagents int }
	require.NoError(t, json.Unmarshal([]byte(out), &counts), out)
	t.Logf("%+v", counts)
	require.Greater(t, counts.Streams, 4*80)
	require.Positive(t, counts.Subagents)
}
