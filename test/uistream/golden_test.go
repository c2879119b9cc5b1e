package uistream

import (
	"cmp"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/agent/agenttest/capture"
	"github.com/overwinter-dev/overwinter/internal/agent/catalog"
	"github.com/overwinter-dev/overwinter/internal/aisdk"
	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/event"
	"github.com/overwinter-dev/overwinter/internal/eventlog"
	"github.com/overwinter-dev/overwinter/internal/resource"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// expected is the required result of a client for a stream.
type expected struct {
	Text      []string      `json:"text"`
	Reasoning []string      `json:"reasoning"`
	Message   aisdk.Message `json:"message"`
}

const runID = "run_00000000000000000000000000000001"

// recordedLogs returns the logs of turns that adapters make from recorded output of agents, by
// name.
func recordedLogs(t *testing.T) map[string][]eventlog.Event {
	t.Helper()
	logs := map[string][]eventlog.Event{}
	folders := map[string]string{"claude-sdk": "claude", "gemini-cli": "gemini"} // for packages with another name than the agent
	for _, adapter := range catalog.Agents().All() {
		name := adapter.Describe().Name
		folder := cmp.Or(folders[name], name)
		count := len(logs)
		for _, pattern := range []string{"captures/*/stdout*.jsonl", "captures/*/events.sse", "*/stream.jsonl", "exec/*/stdout*.jsonl", "run/*/stdout*.jsonl"} {
			files, err := filepath.Glob(filepath.Join("../../internal/agent", folder, "testdata", pattern))
			require.NoError(t, err)
			for _, file := range files {
				if events := translated(t, adapter, capture.Frames(t, file)); len(events) > 0 {
					id := strings.NewReplacer("/", "_", ".jsonl", "", ".sse", "").Replace(strings.TrimPrefix(file, "../../internal/agent/"))
					logs[id] = turnLog(t, events)
				}
			}
		}
		require.Greater(t, len(logs), count, "%s has no recorded streams", name)
		t.Log(name, len(logs)-count)
	}
	require.Greater(t, len(logs), 80)
	return logs
}

// translated returns the events of frames, of all their turns.
func translated(t *testing.T, adapter agent.Adapter, frames []agent.Frame) []conversation.Event {
	t.Helper()
	var events []conversation.Event
	translator, err := adapter.NewTranslator(agent.RunContext{PromptID: "p1"}, nil)
	require.NoError(t, err)
	for _, frame := range frames {
		out, err := translator.Translate(frame)
		require.NoError(t, err)
		events = append(events, out.Events...)
		if out.End != nil {
			translator, err = agent.NextTurn(adapter, translator)
			require.NoError(t, err)
		}
	}
	return append(events, translator.Cut(capture.Begun)...)
}

// turnLog returns the log of a turn with those events.
func turnLog(t *testing.T, events []conversation.Event) []eventlog.Event {
	t.Helper()
	var log []eventlog.Event
	add := func(kind, conversationID string, data any) {
		raw, err := conversation.Encode(data)
		require.NoError(t, err)
		log = append(log, eventlog.Event{Seq: int64(len(log) + 1), Type: kind, SessionID: "ses_1", ConversationID: conversationID, RunID: runID, Data: raw})
	}
	prompt := resource.PromptJSON{ID: "p1", SessionID: "ses_1", Ordinal: 1, Status: session.PromptProcessing, RunID: runID}
	add(event.TypeTurnStart, "", event.TurnStartData{RunID: runID, PromptID: "p1", Attempt: 1})
	add(event.TypePrompt, "", event.PromptData{Prompt: event.PromptChange{PromptJSON: prompt}})
	for _, e := range events {
		e = conversation.InRun(e, runID)
		add(string(e.Type), e.ConversationID, e.Data)
	}
	add(event.TypeTurnEnd, "", event.TurnEndData{RunID: runID, PromptID: "p1", Outcome: session.OutcomeCompleted, Model: "m", Usage: &resource.UsageJSON{InputTokens: 1}})
	prompt.Status = session.PromptCompleted
	add(event.TypePrompt, "", event.PromptData{Prompt: event.PromptChange{PromptJSON: prompt}})
	return log
}

// TestRecordedStreamsOfAISDK makes the AI SDK read the streams of all recorded turns.
func TestRecordedStreamsOfAISDK(t *testing.T) {
	t.Parallel()
	dir := workspace(t)
	for name, log := range recordedLogs(t) {
		e, a := aisdk.NewEncoder("ses_1", "p1"), aisdk.NewAssembler()
		sse := aisdk.AppendSSE(nil, e.Start())
		a.Add(e.Start())
		var folder conversation.Folder
		for _, ev := range log {
			chunks, err := e.Next(ev)
			require.NoError(t, err, name)
			a.Add(chunks)
			sse = aisdk.AppendSSE(sse, chunks)
			require.NoError(t, folder.Apply(conversation.EventType(ev.Type), ev.ConversationID, ev.Data))
		}
		require.True(t, e.Complete(), name)
		want := expected{Text: []string{}, Reasoning: []string{}, Message: a.Message}
		for _, b := range folder.Conversation().Threads[0].Blocks {
			switch b.Type {
			case conversation.AssistantText:
				want.Text = append(want.Text, b.Content)
			case conversation.Thinking:
				want.Reasoning = append(want.Reasoning, b.Content)
			}
		}
		raw, err := json.Marshal(want)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, name+".sse"), append(sse, aisdk.Done...), 0o644))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name+".json"), raw, 0o644))
	}
	require.Contains(t, node(t, dir, "recorded.mjs"), "read")
}
