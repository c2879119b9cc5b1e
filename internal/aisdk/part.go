package aisdk

import (
	"bytes"
	"cmp"
	"encoding/json"

	"github.com/overwinter-dev/overwinter/internal/conversation"
)

// part is a part of the current step. Its chunks method returns all chunks that result in its
// current state.
type part interface {
	chunks() []Chunk
}

// textPart is text or reasoning.
type textPart struct {
	kind   string // text, reasoning
	id     string
	text   string
	closed bool
}

func (p *textPart) start() Chunk {
	return Chunk{Type: p.kind + "-start", ID: p.id, ProviderMetadata: &ProviderMetadata{BlockMetadata{BlockID: p.id}}}
}

func (p *textPart) delta(text string) Chunk {
	return Chunk{Type: p.kind + "-delta", ID: p.id, Delta: text}
}

func (p *textPart) end() Chunk { return Chunk{Type: p.kind + "-end", ID: p.id} }

func (p *textPart) chunks() []Chunk {
	out := []Chunk{p.start()}
	if p.text != "" {
		out = append(out, p.delta(p.text))
	}
	if p.closed {
		out = append(out, p.end())
	}
	return out
}

// toolPart is a call of a tool.
type toolPart struct {
	callID string
	name   string
	tool   conversation.Tool
	status conversation.BlockStatus
	input  json.RawMessage
	asked  string // the question whether it may run
	answer *Chunk
	output *Chunk // the newest
}

// resolved reports whether the call has its result.
func (p *toolPart) resolved() bool { return p.output != nil && !p.output.Preliminary }

func (p *toolPart) call(kind string) Chunk {
	c := Chunk{
		Type: kind, ToolCallID: p.callID, ToolName: cmp.Or(p.name, "tool"), Title: p.tool.Title, Dynamic: true, ProviderExecuted: true,
	}
	if p.tool.Kind != "" {
		meta := p.tool
		meta.Title = ""
		c.ToolMetadata = encode(meta)
	}
	return c
}

// called returns the chunk of the input.
func (p *toolPart) called() Chunk {
	c := p.call("tool-input-available")
	c.Input = p.input
	return c
}

func (p *toolPart) ask() Chunk {
	return Chunk{Type: "tool-approval-request", ApprovalID: p.asked, ToolCallID: p.callID}
}

func (p *toolPart) chunks() []Chunk {
	out := []Chunk{p.call("tool-input-start")}
	if p.input == nil {
		return out
	}
	out = append(out, p.called())
	if p.asked != "" {
		out = append(out, p.ask())
	}
	if p.answer != nil {
		out = append(out, *p.answer)
	}
	if p.output != nil {
		out = append(out, *p.output)
	}
	return out
}

// outputOf returns the chunk with the result of a tool so far; false if there is none.
func outputOf(callID string, b conversation.Block) (Chunk, bool) {
	c := Chunk{Type: "tool-output-available", ToolCallID: callID, Output: b.Output}
	switch {
	case b.Status.Open():
		c.Preliminary = true
		return c, len(b.Output) > 0
	case b.IsError, b.Status == conversation.Aborted, b.Status == conversation.Failed:
		return outputError(callID, cmp.Or(plain(b.Output), "the tool "+cmp.Or(map[conversation.BlockStatus]string{conversation.Aborted: "was aborted"}[b.Status], "failed"))), true
	}
	if len(c.Output) == 0 {
		c.Output = json.RawMessage("null")
	}
	return c, true
}

func outputError(callID, text string) Chunk {
	return Chunk{Type: "tool-output-error", ToolCallID: callID, ErrorText: text}
}

// plain returns the text of a JSON string, and any other JSON unchanged.
func plain(raw json.RawMessage) string {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text
	}
	return string(bytes.TrimSpace(raw))
}

// dataPart is a part whose data is replaced as a whole.
type dataPart struct{ chunk Chunk }

func (p *dataPart) chunks() []Chunk { return []Chunk{p.chunk} }
