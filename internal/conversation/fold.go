package conversation

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Folder builds a conversation from the events of its stream, in order. The zero
// value is an empty conversation. It is not safe for concurrent use.
type Folder struct {
	threads []*foldedThread
	byID    map[string]*foldedThread
}

type foldedThread struct {
	id     string
	blocks []*foldedBlock
	byID   map[string]*foldedBlock
}

type foldedBlock struct {
	block Block
	text  strings.Builder // deltas after block.Content
}

// Apply folds an event in the form of the log. Events that do not concern blocks change nothing,
// nor do events about an unknown block, since a reader may start late. It returns an error, and
// changes nothing, if data does not match its type.
func (f *Folder) Apply(kind EventType, conversationID string, data json.RawMessage) error {
	e := Event{Type: kind, ConversationID: conversationID}
	var err error
	switch kind {
	case EventBlockStart:
		e.Data, err = decode[BlockStart](kind, data)
	case EventBlockComplete:
		e.Data, err = decode[BlockComplete](kind, data)
	case EventTextDelta:
		e.Data, err = decode[TextDelta](kind, data)
	case EventBlockUpdate:
		e.Data, err = decode[BlockUpdate](kind, data)
	case EventBlockRemoved:
		e.Data, err = decode[BlockRemoved](kind, data)
	}
	if err != nil {
		return err
	}
	f.Add(e)
	return nil
}

// Add folds an event in the form of a translator, by the same rules as Apply.
func (f *Folder) Add(e Event) {
	switch d := e.Data.(type) {
	case BlockStart:
		f.thread(e.ConversationID).set(d.Block)
	case BlockComplete:
		f.thread(e.ConversationID).set(d.Block)
	case TextDelta:
		if b := f.block(e.ConversationID, d.BlockID); b != nil {
			b.text.WriteString(d.Delta)
		}
	case BlockUpdate:
		if b := f.block(e.ConversationID, d.BlockID); b != nil {
			d.Updates.apply(&b.block)
		}
	case BlockRemoved:
		if b := f.block(e.ConversationID, d.BlockID); b != nil {
			f.thread(e.ConversationID).remove(b)
		}
	}
}

// Conversation returns the folded conversation, main first.
func (f *Folder) Conversation() Conversation {
	c := Conversation{Threads: []Thread{{ID: Main, Blocks: []Block{}}}}
	for _, t := range f.threads {
		blocks := make([]Block, len(t.blocks))
		for i, b := range t.blocks {
			blocks[i] = b.block
			blocks[i].Content += b.text.String()
		}
		if t.id == Main {
			c.Threads[0].Blocks = blocks
			continue
		}
		c.Threads = append(c.Threads, Thread{ID: t.id, Blocks: blocks})
	}
	return c
}

// Block returns the current state of a block; false if it does not exist.
func (f *Folder) Block(conversationID, id string) (Block, bool) {
	b := f.block(conversationID, id)
	if b == nil {
		return Block{}, false
	}
	now := b.block
	now.Content += b.text.String()
	return now, true
}

// thread returns the conversation with that id and creates it if necessary.
func (f *Folder) thread(id string) *foldedThread {
	if id == "" {
		id = Main
	}
	if t, ok := f.byID[id]; ok {
		return t
	}
	if f.byID == nil {
		f.byID = map[string]*foldedThread{}
	}
	t := &foldedThread{id: id, byID: map[string]*foldedBlock{}}
	f.byID[id] = t
	f.threads = append(f.threads, t)
	return t
}

// block returns an existing block, or nil; it does not create a conversation.
func (f *Folder) block(conversationID, id string) *foldedBlock {
	if conversationID == "" {
		conversationID = Main
	}
	if t, ok := f.byID[conversationID]; ok {
		return t.byID[id]
	}
	return nil
}

// set stores the current state of b: at its old place, or after all others if it is new.
func (t *foldedThread) set(b Block) {
	if have, ok := t.byID[b.ID]; ok {
		have.block = b
		have.text.Reset()
		return
	}
	fb := &foldedBlock{block: b}
	t.byID[b.ID] = fb
	t.blocks = append(t.blocks, fb)
}

func (t *foldedThread) remove(b *foldedBlock) {
	delete(t.byID, b.block.ID)
	t.blocks = slices.DeleteFunc(t.blocks, func(x *foldedBlock) bool { return x == b })
}

func (u Updates) apply(b *Block) {
	if u.Status != "" {
		b.Status = u.Status
	}
	if u.Name != "" {
		b.Name = u.Name
	}
	if len(u.Input) > 0 {
		b.Input = u.Input
	}
	if u.Kind != "" {
		b.Tool = u.Tool
	}
	if len(u.Output) > 0 {
		b.Output = u.Output
	}
	if u.SubagentID != "" {
		b.SubagentID = u.SubagentID
	}
	if u.TruncatedBytes > 0 {
		b.TruncatedBytes = u.TruncatedBytes
	}
}

func decode[T any](kind EventType, data json.RawMessage) (T, error) {
	var d T
	if err := json.Unmarshal(data, &d); err != nil {
		return d, fmt.Errorf("%s event: %w", kind, err)
	}
	return d, nil
}
