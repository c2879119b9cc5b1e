package acpformat

import (
	"strings"
	"time"

	"github.com/overwinter-dev/overwinter/internal/conversation"
)

// maxRaw bounds what is kept of lines that are not understood, and of messages for people.
const maxRaw = 4 << 10

// Whole shows a block that is there all at once.
func Whole(b conversation.Block, at time.Time) []conversation.Event {
	head := conversation.Block{
		ID: b.ID, Type: b.Type, Status: conversation.Streaming, CreatedAt: b.CreatedAt,
		PromptID: b.PromptID, Author: b.Author, Name: b.Name, ToolUseID: b.ToolUseID, Subtype: b.Subtype,
	}
	if b.Type == conversation.ToolUse || b.Type == conversation.ToolResult {
		head.Status = conversation.Running
	}
	return []conversation.Event{
		Event(conversation.EventBlockStart, conversation.BlockStart{Block: head}, at),
		Event(conversation.EventBlockComplete, conversation.BlockComplete{Block: b}, at),
	}
}

// Bounded is at most maxRaw bytes of s.
func Bounded(s string) string {
	if len(s) <= maxRaw {
		return strings.ToValidUTF8(s, "\ufffd")
	}
	return strings.ToValidUTF8(s[:maxRaw], "") + "…"
}
