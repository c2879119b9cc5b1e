package codex

import (
	"slices"
	"time"

	"github.com/overwinter-dev/overwinter/internal/agent/ledger"
	"github.com/overwinter-dev/overwinter/internal/conversation"
)

// maxOpen bounds the text and the input that are kept of an open block. A block that completes is
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

// delta appends to an open block.
func (o *openBlock) delta(words string, at time.Time) conversation.Event {
	if len(o.Text)+len(words) > maxOpen {
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

// running shows what a call is called with.
func (o *openBlock) running(u conversation.Updates, at time.Time) conversation.Event {
	u.Status = conversation.Running
	o.Block.Status = conversation.Running
	if u.SubagentID != "" {
		o.Block.SubagentID = u.SubagentID
	}
	if len(u.Input) > maxOpen {
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
