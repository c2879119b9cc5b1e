package aisdk_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/aisdk"
	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/event"
	"github.com/overwinter-dev/overwinter/internal/eventlog"
)

// TestAbortedTextEnds covers a long text, whose end is only its status.
func TestAbortedTextEnds(t *testing.T) {
	t.Parallel()
	e := aisdk.NewEncoder("ses_1", "p1")
	e.Start()
	var kinds []string
	next := func(kind string, data any) {
		raw, err := json.Marshal(data)
		require.NoError(t, err)
		chunks, err := e.Next(eventlog.Event{Type: kind, RunID: "r1", ConversationID: conversation.Main, Data: raw})
		require.NoError(t, err)
		for _, c := range chunks {
			kinds = append(kinds, c.Type)
		}
	}
	next(event.TypeTurnStart, event.TurnStartData{RunID: "r1", PromptID: "p1", Attempt: 1})
	kinds = nil
	next(string(conversation.EventBlockStart), conversation.BlockStart{Block: conversation.Block{
		ID: "a", Type: conversation.AssistantText, Status: conversation.Streaming,
	}})
	next(string(conversation.EventTextDelta), conversation.TextDelta{BlockID: "a", Delta: "one"})
	aborted := conversation.BlockUpdate{BlockID: "a", Updates: conversation.Updates{Status: conversation.Aborted}}
	next(string(conversation.EventBlockUpdate), aborted)
	next(string(conversation.EventBlockUpdate), aborted)
	require.Equal(t, []string{"text-start", "text-delta", "text-end"}, kinds)
}
