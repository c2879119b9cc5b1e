package terminal

import (
	"fmt"

	"github.com/overwinter-dev/overwinter/internal/conversation"
)

// Resume shows the last blocks of the main conversation and records the open blocks of all
// conversations, so that the events after that position can follow. Call it only on a new view.
func (v *View) Resume(c conversation.Conversation, last int) error {
	for _, th := range c.Threads { // a subagent's conversation follows its parent's
		t := v.thread(th.ID)
		for _, b := range th.Blocks {
			if b.Type == conversation.Subagent {
				t.blocks[b.ID] = &block{Block: b, thread: t, announced: true}
				v.named(t.blocks[b.ID])
			}
			if t.of != nil && b.Type == conversation.AssistantText {
				t.of.hasOutput = true
			}
		}
	}
	for _, th := range c.Threads {
		t := v.thread(th.ID)
		first := len(th.Blocks) // to be shown
		if t.depth == 0 {
			first = max(0, first-last)
			if first > 0 && last > 0 {
				v.line(nil, span{dim, fmt.Sprintf("… %d blocks before", first)})
			}
		}
		for i, b := range th.Blocks {
			v.resume(t, b, i >= first)
		}
	}
	return v.done()
}

func (v *View) resume(t *thread, b conversation.Block, show bool) {
	switch {
	case !b.Status.Open():
		if show {
			v.blockComplete(t, b)
		}
	case b.Type == conversation.Subagent:
		v.running = append(v.running, t.blocks[b.ID])
	default:
		v.blockStart(t, b)
	}
}
