package terminal

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/overwinter-dev/overwinter/internal/conversation"
)

func (v *View) blockStart(t *thread, b conversation.Block) {
	if known := t.blocks[b.ID]; known != nil {
		known.Block = b // the agent starts again
		return
	}
	nb := &block{Block: b, thread: t}
	t.blocks[b.ID] = nb
	switch b.Type {
	case conversation.AssistantText, conversation.Thinking:
		v.write(nb)
	case conversation.ToolUse, conversation.Subagent:
		v.running = append(v.running, nb)
		v.named(nb)
		v.announce(nb)
	}
}

func (v *View) textDelta(t *thread, d conversation.TextDelta) {
	b := t.blocks[d.BlockID]
	if b == nil {
		return // its beginning was not seen; the whole block follows when it is complete
	}
	b.Content += d.Delta
	if isText(b) {
		v.write(b)
	}
}

func isText(b *block) bool {
	return b.Type == conversation.AssistantText || b.Type == conversation.Thinking
}

func (v *View) blockUpdate(t *thread, d conversation.BlockUpdate) {
	b := t.blocks[d.BlockID]
	if b == nil {
		return
	}
	u := d.Updates
	b.Status, b.Name, b.SubagentID = cmp.Or(u.Status, b.Status), cmp.Or(u.Name, b.Name), cmp.Or(u.SubagentID, b.SubagentID)
	if len(u.Input) > 0 {
		b.Input = u.Input
	}
	if u.Kind != "" {
		b.Tool = u.Tool
	}
	if len(u.Output) > 0 {
		b.Output = u.Output
	}
	v.named(b)
	v.announce(b)
	if text := b.Type == conversation.AssistantText || b.Type == conversation.Thinking; text && !b.Status.Open() { // a long text that was aborted
		v.write(b)
		if !slices.Contains(v.waiting, b) {
			delete(t.blocks, d.BlockID)
		}
	}
}

func (v *View) blockComplete(t *thread, whole conversation.Block) {
	b := t.blocks[whole.ID]
	if b == nil {
		b = &block{thread: t}
		t.blocks[whole.ID] = b
	}
	streamed := b.Content
	b.Block = whole
	switch whole.Type {
	case conversation.AssistantText, conversation.Thinking:
		if !strings.HasPrefix(whole.Content, streamed[:b.printed]) {
			v.endText(b)
			b.printed, b.begun, b.newlines = 0, false, 0 // the shown text differs from the block
		}
		v.write(b)
	case conversation.UserMessage:
		v.userMessage(b)
	case conversation.ToolUse, conversation.Subagent:
		v.named(b)
		v.complete(b)
	case conversation.ToolResult:
		v.toolResult(b)
	case conversation.System:
		v.line(t, span{dim, fmt.Sprintf("%s: %s", OneLine(cmp.Or(whole.Subtype, "system"), lineRunes), v.shorten(whole.Message))})
	default:
		v.line(t, span{dim, v.shorten(string(whole.Type) + " " + whole.Content + whole.Message)})
	}
	if !whole.Status.Open() && whole.Type != conversation.ToolUse && whole.Type != conversation.Subagent && !slices.Contains(v.waiting, b) {
		delete(t.blocks, whole.ID)
	}
}

// blockRemoved drops a block, and counts those that have been shown.
func (v *View) blockRemoved(t *thread, id string) {
	b := t.blocks[id]
	if b == nil || b.begun || !b.Status.Open() {
		v.removed++
	}
	if b == nil {
		return
	}
	delete(t.blocks, id)
	v.running = slices.DeleteFunc(v.running, func(x *block) bool { return x == b })
	v.waiting = slices.DeleteFunc(v.waiting, func(x *block) bool { return x == b })
	if v.open == b {
		v.open = nil
		v.screen.newline()
		v.next()
	}
}

// userMessage shows a message to an agent, unless its prompt was already shown.
func (v *View) userMessage(b *block) {
	switch {
	case b.thread.depth > 0:
		v.line(b.thread, span{cyan, v.sign("prompt: ", "❯ ")}, span{dim, v.shorten(b.Content)})
	case b.PromptID == "" || b.PromptID != v.shownPrompt:
		v.text(b.thread, b.Content)
		v.shownPrompt = b.PromptID
	}
}

// write shows the new part of a text, if it is the text's turn: a text of another conversation that
// begins in the meantime waits until this one is complete.
func (v *View) write(b *block) {
	if v.open != nil && v.open != b {
		if !slices.Contains(v.waiting, b) {
			v.waiting = append(v.waiting, b)
		}
		return
	}
	v.open = b
	v.writeOpen(b)
	if !b.Status.Open() {
		v.endText(b)
		v.next()
	}
}

// next shows the waiting texts.
func (v *View) next() {
	for v.open == nil && len(v.waiting) > 0 {
		b := v.waiting[0]
		v.waiting = v.waiting[1:]
		v.open = b
		v.writeOpen(b)
		if !b.Status.Open() {
			v.endText(b)
			delete(b.thread.blocks, b.ID)
		}
	}
}

// finishTexts ends a text that its turn has left open, and shows the waiting texts.
func (v *View) finishTexts() {
	for v.open != nil && v.open.thread.depth == 0 {
		v.endText(v.open)
		v.next()
	}
}

// endText ends the line that b is being written in.
func (v *View) endText(b *block) {
	if v.open != b {
		return
	}
	v.open = nil
	if b.begun && (b.Status == conversation.Aborted || b.Status == conversation.Abandoned) {
		sep := " "
		if v.screen.column == 0 || strings.HasSuffix(b.Content, " ") {
			sep = ""
		}
		v.screen.stream(dim, v.margin(b.thread), sep+"("+string(b.Status)+")")
	}
	v.screen.newline()
}

// writeOpen streams the new part of b. Empty lines at its beginning and end are omitted.
func (v *View) writeOpen(b *block) {
	text := Printable(b.Content[b.printed:])
	b.printed = len(b.Content)
	if !b.begun {
		text = strings.TrimLeft(text, "\n")
	}
	body := strings.TrimRight(text, "\n")
	if body == "" {
		b.newlines += len(text)
		return
	}
	v.flushCounts()
	if of := b.thread.of; of != nil && b.Type == conversation.AssistantText {
		of.hasOutput = true
	}
	st := plain
	if b.Type == conversation.Thinking {
		st = dim
	}
	margin := v.margin(b.thread)
	if !b.begun {
		v.gap(b.thread)
		v.enter(b.thread)
		if !v.rich() {
			label := "agent: "
			if b.Type == conversation.Thinking {
				label = "thinking: "
			}
			v.screen.stream(st, margin, label)
		}
		b.begun = true
	}
	if !v.rich() {
		margin = append(margin, span{plain, "  "})
	}
	owed := b.newlines
	if v.screen.column == 0 && owed > 0 {
		owed-- // another line was written in between
	}
	v.screen.stream(st, margin, strings.Repeat("\n", owed)+body)
	b.newlines = len(text) - len(body)
	v.last, v.blank, v.lastIsText, v.current = nil, false, true, b.thread
}
