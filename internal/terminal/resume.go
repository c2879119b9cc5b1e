package terminal

import (
	"fmt"

	"github.com/overwinter-dev/overwinter/internal/conversation"
)

// Resume shows the last blocks of a conversation as it stands, the main one, and takes up what is
// open in all of them, so that the events after that position can follow. It is for a new view.
func (v *View) Resume(c conversation.Conversation, last int) error {
	for _, th := range c.Threads { // a subagent follows the conversation that it works for
		t := v.thread(th.ID)
		for _, b := range th.Blocks {
			if b.Type == conversation.Subagent {
				t.blocks[b.ID] = &block{Block: b, thread: t, announced: true}
				v.named(t.blocks[b.ID])
			}
			if t.of != nil && b.Type == conversation.AssistantText {
				t.of.heard = true
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
