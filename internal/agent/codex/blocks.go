package codex

import (
	"slices"
	"time"

	"github.com/overwinter-dev/overwinter/internal/agent/ledger"
	"github.com/overwinter-dev/overwinter/internal/conversation"
)

// maxInput bounds the input kept of one open block, and ledger.MaxText its text; ledger.MaxKept
// bounds those of all blocks. A block that completes is emitted in full. If a longer block is aborted,
// only its status changes.
const maxInput = 8 << 10

// openBlock is an open block of a thread.
type openBlock struct {
	ledger.Entry
	Turn string `json:"turn"`
	// Part is the index of the summary part to which the newest delta belonged.
	Part int `json:"part,omitempty"`
	// Long is set if part of the block was not kept.
	Long bool `json:"long,omitempty"`
}

// find returns the open block with that id in a conversation, or nil. Ids of items are unique only
// in a thread.
func (r *reader) find(where, id string) *openBlock {
	for _, o := range slices.Backward(r.Open) {
		if o.Block.ID == id && o.Conversation == where {
			return o
		}
	}
	return nil
}

// room returns how many bytes of an open block may be kept, given the size of the others.
func (r *reader) room(o *openBlock) int {
	kept := 0
	for _, x := range r.Open {
		if x != o {
			kept += len(x.Text) + len(x.Block.Input)
		}
	}
	return min(maxInput, ledger.MaxKept-kept)
}

// delta appends to an open block. The block keeps its text if it fits into room.
func (o *openBlock) delta(words string, room int, at time.Time) conversation.Event {
	if len(o.Text)+len(words) > min(room, ledger.MaxText) {
		o.Long, o.Text = true, nil
	}
	if !o.Long {
		o.Text = append(o.Text, words...)
	}
	return o.Delta(words, at)
}

// withoutText reports whether the block is a text block without any text.
func (o *openBlock) withoutText() bool {
	return o.Block.Type == conversation.AssistantText && len(o.Text) == 0 && !o.Long
}

// running shows the input of a call. The block keeps the input if it fits into room.
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

// Closed completes a block with the content that it has kept.
func (o *openBlock) Closed(status conversation.BlockStatus, at time.Time) conversation.Event {
	if o.Long {
		return o.Updated(conversation.Updates{Status: status}, at)
	}
	return o.Entry.Closed(status, at)
}
