package opencode

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/overwinter-dev/overwinter/internal/conversation"
)

// The blocks of a part, for the translator and the parser alike.

// The subtypes of system blocks.
const (
	subtypeError      = "error"
	subtypeCompaction = "compaction"
	subtypeRetry      = "retry"
	subtypeUnparsed   = "unparsed"
)

// taskTool is the tool that starts a subagent.
const taskTool = "task"

// resultID is the id of the block with the result of a call.
func resultID(partID string) string { return partID + "/result" }

// errorID is the id of the block that says how a message failed.
func errorID(messageID string) string { return messageID + "/error" }

// isText reports whether a part is one of the message's texts.
func (p *part) isText() bool { return p.Type == partText || p.Type == partReasoning }

// shown reports whether a part of a message becomes a block.
func (p *part) shown(m *message) bool {
	switch {
	case p.ID == "":
		return false
	case m.fromUser():
		return p.Type == partText && !p.Synthetic && !p.Ignored
	case p.isText():
		return !p.Ignored
	}
	return p.Type == partTool && p.State != nil
}

// head is the block of a part as it begins.
func (p *part) head(m *message) conversation.Block {
	b := conversation.Block{ID: p.ID, Status: conversation.Streaming, CreatedAt: p.begun(m)}
	switch {
	case m.fromUser():
		b.Type = conversation.UserMessage
	case p.Type == partReasoning:
		b.Type = conversation.Thinking
	case p.Type == partText && m.isSummary():
		b.Type, b.Subtype = conversation.System, subtypeCompaction
	case p.Type == partText:
		b.Type = conversation.AssistantText
	default:
		b.Type, b.Status = conversation.ToolUse, conversation.Pending
		b.Name, b.ToolUseID = p.Tool, p.ID
		if p.Tool == taskTool {
			b.Type, b.Name, b.ToolUseID = conversation.Subagent, taskTool, ""
		}
	}
	return b
}

// begun is when a part began: a pending call has no time, but its id has.
func (p *part) begun(m *message) time.Time {
	switch {
	case m.fromUser():
		return m.created()
	case p.isText() && p.Time != nil && p.Time.Start > 0:
		return p.Time.Start.time()
	}
	return idTime(p.ID, m.created())
}

// say gives a block its text.
func say(b *conversation.Block, text string) {
	if b.Type == conversation.System {
		b.Message = text
		return
	}
	b.Content = text
}

// call fills a block with what is known of its call.
func (p *part) call(b *conversation.Block) {
	b.Input = p.State.input()
	if b.Type != conversation.Subagent {
		return
	}
	b.SubagentID = rawText(p.State.metadata().SessionID)
	b.Name = subagentName(b.Input)
}

// subagentName is the kind of subagent that a call asks for.
func subagentName(input json.RawMessage) string {
	var in struct {
		Type json.RawMessage `json:"subagent_type"`
	}
	_ = json.Unmarshal(input, &in) // input of another form names none
	if name := rawText(in.Type); name != "" {
		return name
	}
	return taskTool
}

// shellAborted ends the output of an aborted command.
const shellAborted = "User aborted the command\n</shell_metadata>"

// outcome is how a call has ended; false as long as it has not.
func (s *toolState) outcome() (conversation.BlockStatus, bool) {
	switch s.Status {
	case callCompleted:
		if strings.HasSuffix(s.Output, shellAborted) {
			return conversation.Aborted, true
		}
		return conversation.Success, true
	case callError:
		if s.Error == callAborted || s.Error == taskAborted || string(s.metadata().Interrupted) == "true" {
			return conversation.Aborted, true
		}
		return conversation.Failed, true
	}
	return "", false
}

// result is the block with the result of a call that has ended. That of an aborted call is what it
// had printed.
func (p *part) result(b conversation.Block, status conversation.BlockStatus) conversation.Block {
	said := p.State.Output
	if p.State.Status == callError {
		said = p.State.Error
		if printed := rawText(p.State.metadata().Output); status == conversation.Aborted && printed != "" {
			said = printed
		}
	}
	output, err := json.Marshal(said)
	if err != nil {
		output = nil // strings always encode
	}
	return conversation.Block{
		ID: resultID(p.ID), Type: conversation.ToolResult, Status: status, CreatedAt: b.CreatedAt,
		ToolUseID: p.ID, Output: output, IsError: status != conversation.Success,
	}
}

// failed is the block that says how a message failed. An aborted one has none.
func (m *message) failed(e *nativeError) conversation.Block {
	return conversation.Block{
		ID: errorID(m.ID), Type: conversation.System, Status: conversation.Complete, CreatedAt: m.created(),
		Subtype: subtypeError, Message: e.words(),
	}
}
