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
	text  strings.Builder // deltas behind block.Content
}

// Apply folds one event in. Events that are not about blocks change nothing, and
// neither does one about a block that is not there: a reader may start late. An
// error means that data is not what its type says.
func (f *Folder) Apply(kind EventType, conversationID string, data json.RawMessage) error {
	switch kind {
	case EventBlockStart, EventBlockComplete:
		var d struct {
			Block Block `json:"block"`
		}
		if err := decode(kind, data, &d); err != nil {
			return err
		}
		f.thread(conversationID).put(d.Block)
	case EventTextDelta:
		var d TextDelta
		if err := decode(kind, data, &d); err != nil {
			return err
		}
		if b := f.thread(conversationID).byID[d.BlockID]; b != nil {
			b.text.WriteString(d.Delta)
		}
	case EventBlockUpdate:
		var d BlockUpdate
		if err := decode(kind, data, &d); err != nil {
			return err
		}
		if b := f.thread(conversationID).byID[d.BlockID]; b != nil {
			d.Updates.apply(&b.block)
		}
	case EventBlockRemoved:
		var d BlockRemoved
		if err := decode(kind, data, &d); err != nil {
			return err
		}
		f.thread(conversationID).remove(d.BlockID)
	}
	return nil
}

// Conversation returns what has been folded so far, main first.
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

func (t *foldedThread) put(b Block) {
	if have, ok := t.byID[b.ID]; ok {
		have.block = b
		have.text.Reset()
		return
	}
	fb := &foldedBlock{block: b}
	t.byID[b.ID] = fb
	t.blocks = append(t.blocks, fb)
}

func (t *foldedThread) remove(id string) {
	if b, ok := t.byID[id]; ok {
		delete(t.byID, id)
		t.blocks = slices.DeleteFunc(t.blocks, func(x *foldedBlock) bool { return x == b })
	}
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
	if len(u.Output) > 0 {
		b.Output = u.Output
	}
}

func decode(kind EventType, data json.RawMessage, into any) error {
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("%s event: %w", kind, err)
	}
	return nil
}
