package opencode

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/overwinter-dev/overwinter/internal/agent/opencode/opencodeformat"
	"github.com/overwinter-dev/overwinter/internal/conversation"
)

// Creates the blocks of parts, for both the translator and the parser.

// The subtypes of system blocks.
const (
	subtypeError      = "error"
	subtypeCompaction = "compaction"
	subtypeRetry      = "retry"
	subtypeUnparsed   = "unparsed"
)

// taskTool is the tool that starts a subagent.
const taskTool = "task"

// resultID returns the id of the block with the result of a call.
func resultID(partID string) string { return partID + "/result" }

// errorID returns the id of the block with the error of a message.
func errorID(messageID string) string { return messageID + "/error" }

// isText reports whether a part is one of the message's texts.
func isText(p *opencodeformat.Part) bool {
	return p.Type == opencodeformat.PartText || p.Type == partReasoning
}

// isShown reports whether a part of a message becomes a block.
func isShown(p *opencodeformat.Part, m *opencodeformat.Message) bool {
	switch {
	case p.ID == "":
		return false
	case m.FromUser():
		return p.Type == opencodeformat.PartText && !p.Synthetic && !p.Ignored
	case isText(p):
		return !p.Ignored
	}
	return p.Type == partTool && p.State != nil
}

// headOf returns the initial block of a part.
func headOf(p *opencodeformat.Part, m *opencodeformat.Message) conversation.Block {
	b := conversation.Block{ID: p.ID, Status: conversation.Streaming, CreatedAt: begunAt(p, m)}
	switch {
	case m.FromUser():
		b.Type = conversation.UserMessage
	case p.Type == partReasoning:
		b.Type = conversation.Thinking
	case p.Type == opencodeformat.PartText && isSummary(m):
		b.Type, b.Subtype = conversation.System, subtypeCompaction
	case p.Type == opencodeformat.PartText:
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

// begunAt returns when a part began. A pending call has no time, but its id has.
func begunAt(p *opencodeformat.Part, m *opencodeformat.Message) time.Time {
	switch {
	case m.FromUser():
		return createdAt(m)
	case isText(p) && p.Time != nil && p.Time.Start > 0:
		return p.Time.Start.Time()
	}
	return opencodeformat.IdTime(p.ID, createdAt(m))
}

// setText sets the text of a block.
func setText(b *conversation.Block, text string) {
	if b.Type == conversation.System {
		b.Message = text
		return
	}
	b.Content = text
}

// setCall sets the known details of a block's call.
func setCall(p *opencodeformat.Part, b *conversation.Block) {
	b.Input = inputOf(p.State)
	if b.Type != conversation.Subagent {
		return
	}
	b.SubagentID = rawText(metadataOf(p.State).SessionID)
	b.Name = subagentName(b.Input)
}

// subagentName returns the kind of subagent that a call requests.
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

// callOutcome returns how a call has ended, or false if it has not ended.
func callOutcome(s *opencodeformat.ToolState) (conversation.BlockStatus, bool) {
	switch s.Status {
	case callCompleted:
		if strings.HasSuffix(s.Output, shellAborted) {
			return conversation.Aborted, true
		}
		return conversation.Success, true
	case callError:
		if s.Error == callAborted || s.Error == taskAborted || string(metadataOf(s).Interrupted) == "true" {
			return conversation.Aborted, true
		}
		return conversation.Failed, true
	}
	return "", false
}

// resultOf returns the block with the result of a call that has ended. The result of an aborted
// call is its output so far.
func resultOf(p *opencodeformat.Part, b conversation.Block, status conversation.BlockStatus, images []conversation.ImageData) conversation.Block {
	text := p.State.Output
	if p.State.Status == callError {
		text = p.State.Error
		if printed := rawText(metadataOf(p.State).Output); status == conversation.Aborted && printed != "" {
			text = printed
		}
	}
	output, err := json.Marshal(text)
	if err != nil {
		output = nil // strings can always be encoded
	}
	return conversation.Block{
		ID: resultID(p.ID), Type: conversation.ToolResult, Status: status, CreatedAt: b.CreatedAt,
		ToolUseID: p.ID, Output: output, IsError: status != conversation.Success, Images: conversation.References(images),
	}
}

// failureOf returns the block that describes how a message failed. An aborted message has no such
// block.
func failureOf(m *opencodeformat.Message, e *opencodeformat.NativeError) conversation.Block {
	return conversation.Block{
		ID: errorID(m.ID), Type: conversation.System, Status: conversation.Complete, CreatedAt: createdAt(m),
		Subtype: subtypeError, Message: e.Words(),
	}
}
