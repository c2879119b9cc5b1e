package turn

import (
	"time"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/attachment"
	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/eventlog"
)

const (
	// maxBatchBytes and maxBatchEvents bound a commit; more events are divided among several
	// commits. The events of one frame stay together.
	maxBatchBytes  = 1 << 20
	maxBatchEvents = 1024
	// maxDelta bounds the text of a joined delta.
	maxDelta = 32 << 10
)

// batch is the events and state of frames that are committed together.
type batch struct {
	add   eventlog.Append
	bytes int
	frame int64
	at    time.Time // of the frame
	end   *agent.TurnEnd
	delta joinedDelta
	// images are stored before the events.
	images []attachment.Attachment
	// urgent means that a frame of the batch was answered. Committing it now saves the next attempt
	// from answering it again.
	urgent bool
	began  time.Time
	// due is when the batch is committed at the latest if no reader waits for its events; zero if it
	// has none. awaited means that readers wait for some.
	due     time.Time
	awaited bool
}

// joinedDelta is the text of the last event of a batch if that event is a delta and another delta
// has followed it. Otherwise the event is not decoded, because an agent that prints slowly makes
// one delta per commit.
type joinedDelta struct {
	decoded bool // block and text are those of the last event
	joined  int  // deltas that were added to text
	block   string
	text    []byte
}

func (b *batch) full() bool { return b.bytes >= maxBatchBytes || len(b.add.Events) >= maxBatchEvents }

// events returns the events of the batch.
func (b *batch) events() ([]eventlog.Draft, error) { return b.add.Events, b.endDelta() }

// addEvents adds the events of a frame. A delta that follows a delta of the same block is joined to
// it, and the joined event has the frame and the time of the last delta. They are read together
// anyway, and an agent that prints as fast as it can makes thousands of deltas.
func (b *batch) addEvents(events []eventlog.Draft) error {
	for _, e := range events {
		b.bytes += len(e.Data)
		if joined, err := b.join(e); err != nil {
			return err
		} else if !joined {
			b.add.Events = append(b.add.Events, e)
		}
	}
	return nil
}

// observe determines whether readers wait for the events of a frame. They do not wait for a prelude:
// the agent's echo of the prompt, and the start of an empty text block. Nor do they wait for a
// conclusion: the end of a block whose text they have got in deltas, and the usage of the turn. spoken
// is the block of the newest delta, which observe updates.
func (b *batch) observe(events []conversation.Event, spoken *string) {
	for _, e := range events {
		deferral := maxPreludeDeferral
		switch d := e.Data.(type) {
		case conversation.BlockStart:
			b.awaited = b.awaited || d.Block.Type != conversation.UserMessage && (!isText(d.Block) || d.Block.Content != "")
		case conversation.BlockComplete:
			if isText(d.Block) && d.Block.ID == *spoken {
				deferral = maxConclusionDeferral
			} else {
				b.awaited = b.awaited || d.Block.Type != conversation.UserMessage
			}
		case conversation.MetadataUpdate:
			deferral = maxConclusionDeferral
		case conversation.TextDelta:
			*spoken, b.awaited = d.BlockID, true
		default:
			b.awaited = true
		}
		if due := time.Now().Add(deferral); b.due.IsZero() || due.Before(b.due) {
			b.due = due
		}
	}
}

func isText(b conversation.Block) bool {
	return b.Type == conversation.AssistantText || b.Type == conversation.Thinking
}

// addImages adds the images of a frame.
func (b *batch) addImages(images []attachment.Attachment) {
	for _, i := range images {
		b.bytes += len(i.Data)
	}
	b.images = append(b.images, images...)
}

// join adds a delta to the last event, if possible, and reports whether it did.
func (b *batch) join(e eventlog.Draft) (bool, error) {
	const delta = string(conversation.EventTextDelta)
	n := len(b.add.Events)
	if e.Type != delta || n == 0 || b.add.Events[n-1].Type != delta {
		return false, b.endDelta()
	}
	last := &b.add.Events[n-1]
	d := &b.delta
	if !d.decoded {
		first, err := conversation.DecodeTextDelta(last.Data)
		if err != nil {
			return false, nil //nolint:nilerr // it is stored unchanged
		}
		*d = joinedDelta{decoded: true, block: first.BlockID, text: append(d.text[:0], first.Delta...)}
	}
	next, err := conversation.DecodeTextDelta(e.Data)
	if err != nil {
		return false, b.endDelta()
	}
	if next.BlockID != d.block || last.ConversationID != e.ConversationID || len(d.text)+len(next.Delta) > maxDelta {
		err := b.endDelta()
		*d = joinedDelta{decoded: true, block: next.BlockID, text: append(d.text[:0], next.Delta...)}
		return false, err
	}
	d.text = append(d.text, next.Delta...)
	d.joined++
	last.Frame, last.N, last.At = e.Frame, e.N, e.At
	return true, nil
}

// endDelta encodes the joined deltas as the last event. No further delta is joined to it.
func (b *batch) endDelta() error {
	d := &b.delta
	if d.joined > 0 {
		data, err := conversation.Encode(conversation.TextDelta{BlockID: d.block, Delta: string(d.text)})
		if err != nil {
			return err
		}
		b.add.Events[len(b.add.Events)-1].Data = data
	}
	d.decoded, d.joined = false, 0
	return nil
}
