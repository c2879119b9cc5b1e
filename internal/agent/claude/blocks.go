package claude

import (
	"slices"
	"time"

	"github.com/overwinter-dev/overwinter/internal/agent/ledger"
	"github.com/overwinter-dev/overwinter/internal/conversation"
)

// blocks keeps the complete open blocks, because a block is shown in full when it completes. It
// returns each change as events. Unlike a ledger.Ledger, it finds a block without a linear search.
type blocks struct {
	Open []*openBlock `json:"open,omitempty"` // in the order in which they were opened; nil for closed blocks
	// The following fields are derived from Open on first use. They make lookups constant time.
	byID    map[string]*openBlock
	writing []*openBlock // blocks that the model is still writing
	closed  int          // how many of Open are nil
	// compactions counts the open compaction blocks.
	compactions int
}

// maxWriting bounds the parts that the model writes concurrently. In a valid stream there is only
// one.
const maxWriting = 256

type openBlock struct {
	ledger.Entry
	Long bool `json:"long,omitempty"` // the deltas exceed ledger.MaxText and are not kept
	// Message and Index identify the message and the part that the block shows while the model is
	// writing it. Message is empty once the agent has reported the complete part.
	Message string `json:"message,omitempty"`
	Index   int    `json:"index,omitempty"`
	place   int    // index in blocks.Open
}

// prepare builds the lookup fields from the open blocks.
func (l *blocks) prepare() {
	if l.byID != nil {
		return
	}
	open := l.Open
	l.Open, l.byID = nil, map[string]*openBlock{}
	for _, o := range open {
		if o != nil {
			l.enter(o)
		}
	}
}

func (l *blocks) enter(o *openBlock) {
	o.place = len(l.Open)
	l.Open = append(l.Open, o)
	l.byID[o.Block.ID] = o
	if o.Message != "" {
		l.writing = append(l.writing, o)
	}
	if o.Block.Subtype == "compaction" {
		l.compactions++
	}
}

// start opens a block.
func (l *blocks) start(o *openBlock, at time.Time) conversation.Event {
	l.prepare()
	l.enter(o)
	return o.Started(at)
}

// find returns the open block with that id, or nil.
func (l *blocks) find(id string) *openBlock {
	l.prepare()
	return l.byID[id]
}

// last returns the most recently opened block, or nil.
func (l *blocks) last() *openBlock {
	l.prepare()
	if len(l.Open) == 0 {
		return nil
	}
	return l.Open[len(l.Open)-1]
}

// written returns the block of a part that the model is writing, or nil.
func (l *blocks) written(message string, index int) *openBlock {
	l.prepare()
	for _, o := range slices.Backward(l.writing) {
		if o.Index == index && o.Message == message {
			return o
		}
	}
	return nil
}

// passed records that the agent has reported the block's complete part.
func (l *blocks) passed(o *openBlock) {
	l.prepare()
	o.Message, o.Index = "", 0
	l.writing = slices.DeleteFunc(l.writing, func(x *openBlock) bool { return x == o })
}

// compaction returns the open block of a compaction, or nil.
func (l *blocks) compaction(where string) *openBlock {
	l.prepare()
	if l.compactions == 0 {
		return nil
	}
	for _, o := range l.Open {
		if o != nil && o.Block.Subtype == "compaction" && o.Conversation == where {
			return o
		}
	}
	return nil
}

// say appends to the text of an open block whose text is kept. The text is used only if the model is aborted and the
// agent does not report the partial text.
func (o *openBlock) say(words string) {
	if len(o.Text)+len(words) > ledger.MaxText {
		o.Long, o.Text = true, nil
		return
	}
	o.Text = append(o.Text, words...)
}

// whole sets the complete content of an open block and replaces earlier text.
func (o *openBlock) whole(content string) {
	o.Block.Content, o.Text, o.Long = content, nil, false
}

// close completes an open block, or only changes its status if its complete content is unknown.
func (l *blocks) close(o *openBlock, status conversation.BlockStatus, at time.Time) conversation.Event {
	l.forget(o)
	if o.Long {
		return o.Updated(conversation.Updates{Status: status}, at)
	}
	return o.Closed(status, at)
}

// remove removes an open block.
func (l *blocks) remove(o *openBlock, at time.Time) conversation.Event {
	l.forget(o)
	return o.Removed(at)
}

func (l *blocks) forget(o *openBlock) {
	l.prepare()
	l.passed(o)
	if l.byID[o.Block.ID] == o {
		delete(l.byID, o.Block.ID)
	}
	if o.Block.Subtype == "compaction" {
		l.compactions--
	}
	l.Open[o.place] = nil
	l.closed++
	for len(l.Open) > 0 && l.Open[len(l.Open)-1] == nil {
		l.Open = l.Open[:len(l.Open)-1]
		l.closed--
	}
	const few = 16
	if l.closed > few && l.closed > len(l.Open)/2 {
		l.Open = slices.DeleteFunc(l.Open, func(x *openBlock) bool { return x == nil })
		l.closed = 0
		for i, x := range l.Open {
			x.place = i
		}
	}
}
