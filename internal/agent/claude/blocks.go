package claude

import (
	"slices"
	"time"

	"github.com/overwinter-dev/overwinter/internal/agent/ledger"
	"github.com/overwinter-dev/overwinter/internal/conversation"
)

// blocks keeps the open blocks whole, because a block that completes is shown whole. It returns
// each change as events. Unlike a ledger.Ledger it finds one of many without a search.
type blocks struct {
	Open []*openBlock `json:"open,omitempty"` // in the order they were opened; nil for those closed meanwhile
	// What follows is made of Open when it is needed, so that many open blocks cost no more each than few.
	byID    map[string]*openBlock
	writing []*openBlock // those that the model is still writing
	closed  int          // how many of Open are nil
	// compactions is how many compactions are open.
	compactions int
}

// maxWriting bounds how many parts the model writes at once. There is one, unless a stream is broken.
const maxWriting = 256

type openBlock struct {
	ledger.Entry
	Long bool `json:"long,omitempty"` // the deltas are more than maxText, and not kept
	// Message and Index say which part of which message of the model the block is, as long as the
	// model is still writing it. Message is empty once the agent has passed the part on whole.
	Message string `json:"message,omitempty"`
	Index   int    `json:"index,omitempty"`
	place   int    // in blocks.Open
}

// prepare makes what is kept of the open blocks to find them.
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

// find returns the open block of that id, or nil.
func (l *blocks) find(id string) *openBlock {
	l.prepare()
	return l.byID[id]
}

// last returns the block that was opened last, or nil.
func (l *blocks) last() *openBlock {
	l.prepare()
	if len(l.Open) == 0 {
		return nil
	}
	return l.Open[len(l.Open)-1]
}

// written returns the block of a part that the model is still writing, or nil.
func (l *blocks) written(message string, index int) *openBlock {
	l.prepare()
	for _, o := range slices.Backward(l.writing) {
		if o.Index == index && o.Message == message {
			return o
		}
	}
	return nil
}

// passed notes that the agent has passed the block's part on whole.
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

// maxText bounds the deltas that are kept of an open block, because a translator's state is written
// often. They are used only if the model is aborted and the agent does not pass on the partial
// text.
const maxText = 16 << 10

// say appends to an open block.
func (o *openBlock) say(words string) {
	if o.Long || len(o.Text)+len(words) > maxText {
		o.Long, o.Text = true, nil
		return
	}
	o.Text = append(o.Text, words...)
}

// whole gives an open block its content, whatever was said before.
func (o *openBlock) whole(content string) {
	o.Block.Content, o.Text, o.Long = content, nil, false
}

// close completes an open block, or changes its state where the whole is not known.
func (l *blocks) close(o *openBlock, status conversation.BlockStatus, at time.Time) conversation.Event {
	l.forget(o)
	if o.Long {
		return o.Updated(conversation.Updates{Status: status}, at)
	}
	return o.Closed(status, at)
}

// remove takes an open block back.
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
