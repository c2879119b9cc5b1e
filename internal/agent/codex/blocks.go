package codex

import (
	"slices"
	"time"

	"github.com/overwinter-dev/overwinter/internal/agent/ledger"
	"github.com/overwinter-dev/overwinter/internal/conversation"
)

// maxOpen bounds the text and the input that are kept of one open block; ledger.MaxKept bounds those of all. A block that completes is
// emitted whole; a longer one that is aborted only changes its state.
const maxOpen = 8 << 10

// openBlock is an open block of a thread.
type openBlock struct {
	ledger.Entry
	Turn string `json:"turn"`
	// Part is the part of a summary that the newest delta belonged to.
	Part int `json:"part,omitempty"`
	// Long: some of the block is not kept.
	Long bool `json:"long,omitempty"`
}

// find returns the open block of that id in a conversation, or nil: ids of items are unique in a thread.
func (r *reader) find(where, id string) *openBlock {
	for _, o := range slices.Backward(r.Open) {
		if o.Block.ID == id && o.Conversation == where {
			return o
		}
	}
	return nil
}

// room is how many bytes of an open block may be kept, in view of the others.
func (r *reader) room(o *openBlock) int {
	kept := 0
	for _, x := range r.Open {
		if x != o {
			kept += len(x.Text) + len(x.Block.Input)
		}
	}
	return min(maxOpen, ledger.MaxKept-kept)
}

// delta appends to an open block, which keeps as much text as there is room for.
func (o *openBlock) delta(words string, room int, at time.Time) conversation.Event {
	if len(o.Text)+len(words) > room {
		o.Long, o.Text = true, nil
	}
	if !o.Long {
		o.Text = append(o.Text, words...)
	}
	return o.Delta(words, at)
}

// wordless reports whether the block is of a text that has begun and has no words.
func (o *openBlock) wordless() bool {
	return o.Block.Type == conversation.AssistantText && len(o.Text) == 0 && !o.Long
}

// running shows what a call is called with, which the block keeps if there is room for it.
func (o *openBlock) running(u conversation.Updates, room int, at time.Time) conversation.Event {
	u.Status = conversation.Running
	o.Block.Status = conversation.Running
	if u.SubagentID != "" {
		o.Block.SubagentID = u.SubagentID
	}
	if len(u.Input) > room {
		o.Long = true
	} else if len(u.Input) > 0 {
		o.Block.Input = u.Input
	}
	return o.Updated(u, at)
}

// Closed completes a block with what is kept of it.
func (o *openBlock) Closed(status conversation.BlockStatus, at time.Time) conversation.Event {
	if o.Long {
		return o.Updated(conversation.Updates{Status: status}, at)
	}
	return o.Entry.Closed(status, at)
}
