package ledger_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/agent/ledger"
	"github.com/overwinter-dev/overwinter/internal/conversation"
)

var at = time.Date(2026, 11, 23, 0, 0, 0, 0, time.UTC)

// call is a block type of an agent that shows no content of an aborted call.
type call struct {
	ledger.Entry
	Name string `json:"name,omitempty"`
}

func (c *call) Closed(status conversation.BlockStatus, at time.Time) conversation.Event {
	if status == conversation.Aborted {
		return c.Removed(at)
	}
	return c.Entry.Closed(status, at)
}

func open(where, id string) *call {
	return &call{Entry: ledger.Entry{Conversation: where, Block: conversation.Block{
		ID: id, Type: conversation.ToolUse, Status: conversation.Pending, CreatedAt: at,
	}}}
}

func kinds(events []conversation.Event) []string {
	var out []string
	for _, e := range events {
		out = append(out, fmt.Sprintf("%s %s", e.ConversationID, e.Type))
	}
	return out
}

func TestBlocksEndByType(t *testing.T) {
	t.Parallel()
	var l ledger.Ledger[*call]
	events := l.Start(open("", "a"), at)
	events = append(events, l.Start(open("sub", "b"), at)...)
	events = append(events, l.Find("a").Delta("x", at), l.Close(l.Find("a"), conversation.Success, at))
	events = append(events, l.Cut(at)...)
	require.Equal(t, []string{"main block_start", "sub block_start", "main text_delta", "main block_complete", "sub block_removed"}, kinds(events))
	require.Empty(t, l.Open)
	require.Nil(t, l.Find("a"))
}

func TestOldestOfTooManyIsClosed(t *testing.T) {
	t.Parallel()
	var l ledger.Ledger[*ledger.Entry]
	for i := range ledger.Max {
		require.Len(t, l.Start(&ledger.Entry{Block: conversation.Block{ID: fmt.Sprint(i)}, Text: []byte("x")}, at), 1)
	}
	events := l.Start(&ledger.Entry{Block: conversation.Block{ID: "more"}}, at)
	require.Equal(t, []string{"main block_complete", "main block_start"}, kinds(events))
	closed, ok := events[0].Data.(conversation.BlockComplete)
	require.True(t, ok)
	require.Equal(t, conversation.Block{ID: "0", Status: conversation.Aborted, Content: "x"}, closed.Block)
	require.Len(t, l.Open, ledger.Max)
}

func TestFinalBlockReplacesOpenBlock(t *testing.T) {
	t.Parallel()
	var l ledger.Ledger[*call]
	l.Start(open("sub", "a"), at)
	result := conversation.Block{ID: "a", Type: conversation.ToolUse, Status: conversation.Success, Input: json.RawMessage(`{"x":1}`)}
	require.Equal(t, []string{"sub block_complete"}, kinds(l.Show("", result, at)), "the open block says where it is")

	var folded conversation.Folder
	events := l.Show("", result, at)
	require.Equal(t, []string{"main block_start", "main block_complete"}, kinds(events))
	head, ok := events[0].Data.(conversation.BlockStart)
	require.True(t, ok)
	require.Equal(t, conversation.Block{ID: "a", Type: conversation.ToolUse, Status: conversation.Running}, head.Block)
	for _, e := range events {
		folded.Add(e)
	}
	require.Equal(t, []conversation.Block{result}, folded.Conversation().Threads[0].Blocks)
}

// TestStateKeepsItsForm checks the names under which open blocks are stored in the states of
// running turns.
func TestStateKeepsItsForm(t *testing.T) {
	t.Parallel()
	var l ledger.Ledger[*call]
	const stored = `{"open":[{"conversation":"main","block":{"id":"a","type":"tool_use","status":"running",` +
		`"createdAt":"2026-11-23T00:00:00.000Z","name":"","input":null,"toolUseId":""},"text":"eA==","name":"n"}]}`
	require.NoError(t, json.Unmarshal([]byte(stored), &l))
	require.Equal(t, "n", l.Find("a").Name)
	again, err := json.Marshal(&l)
	require.NoError(t, err)
	require.JSONEq(t, stored, string(again))
}
