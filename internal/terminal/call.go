package terminal

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/overwinter-dev/overwinter/internal/conversation"
)

// named sets a subagent's label, and that of its conversation once that is known.
func (v *View) named(b *block) {
	if b.Type != conversation.Subagent {
		return
	}
	if b.label == "" {
		name := cmp.Or(OneLine(b.Name, labelRunes), "subagent")
		b.label = name
		if v.labels[name]++; v.labels[name] > 1 {
			b.label = fmt.Sprintf("%s %d", name, v.labels[name])
		}
	}
	if b.SubagentID == "" || b.SubagentID == conversation.Main {
		return
	}
	if t := v.thread(b.SubagentID); t.of == nil && t != b.thread {
		t.of, t.label, t.depth = b, b.label, b.thread.depth+1
	}
}

// announce shows that a call runs, if the footer does not. It always does so for a subagent,
// because its lines follow.
func (v *View) announce(b *block) {
	if b.Status != conversation.Running || b.announced {
		return
	}
	b.announced = true
	if b.Type == conversation.Subagent || !v.options.Rewrite {
		v.aside(b.thread)
		spans := v.call(b)
		if v.rich() {
			spans[0] = span{dim, "▸ "}
		}
		v.line(b.thread, spans...)
		v.last = b
	}
}

// aside separates the next line from a preceding text.
func (v *View) aside(t *thread) {
	if v.lastIsText {
		v.gap(t)
	}
}

// complete shows how a call ended.
func (v *View) complete(b *block) {
	v.running = slices.DeleteFunc(v.running, func(x *block) bool { return x == b })
	v.aside(b.thread)
	v.line(b.thread, v.call(b)...)
	v.last = b
	if b.result != nil {
		v.result(b, *b.result)
	}
}

// call returns the line of a tool or a subagent.
func (v *View) call(b *block) []span {
	kind, name := "tool ", cmp.Or(OneLine(b.Name, labelRunes), "tool")
	if b.Type == conversation.Subagent {
		kind, name = "subagent ", b.label
	}
	about := summary(b.Input)
	if about == "" || strings.HasPrefix(about, "{") {
		about = cmp.Or(b.Title, about) // the input has no known field
	}
	if !v.rich() {
		text := kind + name + " " + OneLine(string(b.Status), labelRunes)
		if about = v.shorten(about); about != "" {
			text += ": " + about
		}
		return []span{{plain, text}}
	}
	if most := v.screen.edge(); most > 0 && !v.options.Full {
		about = fit(about, max(most-textColumns(name)-4-2*b.thread.depth-len(v.stamp), minWidth))
	} else {
		about = v.shorten(about)
	}
	sign, st := "• ", dim
	switch b.Status {
	case conversation.Pending:
		sign = "○ "
	case conversation.Running:
		sign, st = "◐ ", yellow
	case conversation.Success:
		sign, st = "✓ ", green
	case conversation.Failed:
		sign, st = "✗ ", red
	case conversation.Aborted:
		sign, st = "⊘ ", yellow
	}
	spans := []span{{st, sign}, {bold, name}}
	if about != "" {
		spans = append(spans, span{dim, "  " + about})
	}
	return spans
}

// toolResult shows a result under its call; a result that arrives early waits for the end of the
// call.
func (v *View) toolResult(r *block) {
	var of *block
	for _, b := range r.thread.blocks {
		if b.Type != conversation.ToolResult && r.ToolUseID != "" && (b.ID == r.ToolUseID || b.ToolUseID == r.ToolUseID) {
			of = b
		}
	}
	if of != nil && of.Status.Open() {
		of.result = &r.Block
		return
	}
	if of == nil {
		of = &block{thread: r.thread}
	}
	v.result(of, r.Block)
}

// picture returns the line of an image.
func picture(i conversation.Image) string {
	text := fmt.Sprintf("[%s, %d bytes: %s]", i.MediaType, i.Bytes, i.ID)
	if i.Omitted {
		text = fmt.Sprintf("[%s, %d bytes, not stored]", i.MediaType, i.Bytes)
	}
	return text
}

// result shows the result of a call, abbreviated.
func (v *View) result(of *block, r conversation.Block) {
	delete(of.thread.blocks, of.ID)
	all := lines(plainText(r.Output))
	for _, i := range r.Images {
		all = append(all, picture(i))
	}
	if len(all) == 0 || of.hasOutput && !r.IsError && !v.options.Full {
		return // a subagent's result repeats its text
	}
	if v.last != of || of.ID == "" {
		text := "result"
		if of.ID != "" {
			text += " of " + cmp.Or(of.label, OneLine(of.Name, labelRunes))
			if about := summary(of.Input); about != "" {
				text += ": " + OneLine(about, labelRunes)
			}
		}
		v.line(of.thread, span{dim, text})
	}
	st := dim
	if r.IsError {
		st = red
	}
	for i, line := range all {
		if i == resultLines && len(all) > resultLines+1 && !v.options.Full {
			v.line(of.thread, span{dim, fmt.Sprintf("  … %d more lines", len(all)-i)})
			return
		}
		if most := v.screen.edge(); most > 0 && !v.options.Full {
			line = fit(Printable(line), most-2-2*of.thread.depth-textColumns(v.stamp))
		}
		v.line(of.thread, span{st, "  " + v.cut(line)})
	}
}
