package conversation

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// Bounds of the events of one turn. Output of an agent beyond them is counted and omitted.
const (
	// MaxBlockBytes bounds the content, message, input and output of a block, each.
	MaxBlockBytes = 1 << 20
	// MaxTurnBytes bounds the data of all events of a turn. Beyond it only the final status of open
	// blocks is recorded.
	MaxTurnBytes = 64 << 20
	// MaxTurnEvents bounds the events of a turn in the same way.
	MaxTurnEvents = 1_000_000
	// MaxIDBytes bounds ids that agents choose. A longer one is replaced by its
	// beginning and a hash.
	MaxIDBytes = 256
	// maxLabelBytes bounds names and titles.
	maxLabelBytes = 4 << 10
	// MaxOpenBlocks bounds the blocks that an agent may have open at the same time. Beyond it all
	// of them are closed as aborted; see Limiter.Crowded.
	MaxOpenBlocks = 256
	// maxLimited bounds the open blocks that a Limiter tracks: MaxOpenBlocks and those that one
	// frame opens. Beyond it the oldest is closed as aborted.
	maxLimited = 1000
)

// CodeTurnTruncated is the code of the error event for a turn that has reached MaxTurnBytes or
// MaxTurnEvents.
const CodeTurnTruncated = "turn_truncated"

// Limiter keeps the events of a turn within the bounds. Its fields are its state, which another
// process can continue. The zero value is for a new turn.
type Limiter struct {
	Bytes  int64          `json:"bytes,omitempty"`  // bytes of the data of events so far
	Events int64          `json:"events,omitempty"` // number of events so far; 0 for a turn of an earlier release
	Full   bool           `json:"full,omitempty"`   // MaxTurnBytes or MaxTurnEvents was reached and reported by an event
	Open   []limitedBlock `json:"open,omitempty"`
	// Asked is the number of questions that the turn has asked people.
	Asked int `json:"asked,omitempty"`
	// AskedBytes is the stored size of all questions of the turn, including those that a policy
	// decides.
	AskedBytes int64 `json:"askedBytes,omitempty"`
	// Images are the ids of the images that the turn has stored, and ImageBytes is their total
	// size.
	Images     []string `json:"images,omitempty"`
	ImageBytes int64    `json:"imageBytes,omitempty"`

	// Other counts events of the turn that do not originate from the agent. They are not part of
	// the state, since they are in the log.
	Other Amount `json:"-"`

	evicted []limitedBlock // evicted by the current event
}

// Amount is an amount of events.
type Amount struct{ Bytes, Events int64 }

// Room returns the remaining budget of the turn; zero or less if it has reached a bound.
func (l *Limiter) Room() Amount {
	return Amount{Bytes: MaxTurnBytes - l.Bytes - l.Other.Bytes, Events: MaxTurnEvents - l.Events - l.Other.Events}
}

// None reports whether there is no room.
func (s Amount) None() bool { return s.Bytes <= 0 || s.Events <= 0 }

// TurnTruncated returns the data of the error event.
func TurnTruncated() Problem {
	return Problem{
		Code:    CodeTurnTruncated,
		Message: fmt.Sprintf("The turn has made more than %d bytes of events, or more than %d events. Later events are not recorded.", MaxTurnBytes, MaxTurnEvents),
	}
}

// Crowded reports whether more than MaxOpenBlocks blocks are open. The translator of the turn must
// then close all of them (Translator.Cut), since its state of each is written with every commit. A
// block that the agent continues later is opened again.
func (l *Limiter) Crowded() bool { return len(l.Open) > MaxOpenBlocks }

// limitedBlock is an open block.
type limitedBlock struct {
	Conversation string `json:"c,omitempty"`
	ID           string `json:"b"`
	Text         int64  `json:"n,omitempty"` // bytes of its deltas, including omitted ones
}

// Encoded is an event with its data in JSON.
type Encoded struct {
	Event
	JSON json.RawMessage
}

// Encode returns the encoded events that represent e within the bounds, usually one.
func (l *Limiter) Encode(e Event) ([]Encoded, error) {
	var out []Encoded
	if !l.Full && l.Room().None() {
		l.Full = true
		out = append(out, Encoded{Event: Event{Type: EventError, ConversationID: e.ConversationID, At: e.At, Data: TurnTruncated()}})
	}
	limited, ok := l.limit(e)
	for _, b := range l.evicted {
		out = append(out, Encoded{Event: Event{Type: EventBlockUpdate, ConversationID: b.Conversation, At: e.At, Data: BlockUpdate{
			BlockID: b.ID, Updates: Updates{Status: Aborted, TruncatedBytes: max(0, b.Text-MaxBlockBytes)},
		}}})
	}
	l.evicted = nil
	if ok {
		out = append(out, Encoded{Event: limited})
	}
	for i := range out {
		data, err := Encode(out[i].Data)
		if err != nil {
			return nil, fmt.Errorf("%s event: %w", out[i].Type, err)
		}
		out[i].JSON = data
		l.Bytes += int64(len(data))
		l.Events++
	}
	return out, nil
}

// limit returns e within the bounds, and false if it must be omitted.
func (l *Limiter) limit(e Event) (Event, bool) {
	e.ConversationID = BoundedID(e.ConversationID)
	switch d := e.Data.(type) {
	case BlockStart:
		return l.start(e, d)
	case TextDelta:
		return l.delta(e, d)
	case BlockUpdate:
		return l.update(e, d)
	case BlockComplete:
		return l.complete(e, d)
	case BlockRemoved:
		return l.remove(e, d)
	case Title:
		d.Title = head(d.Title, maxLabelBytes)
		e.Data = d
		return e, !l.Full
	case Problem:
		d.Code, d.Message = head(d.Code, maxLabelBytes), head(d.Message, MaxBlockBytes)
		e.Data = d
		return e, !l.Full
	case MetadataUpdate:
		d.Model = head(d.Model, maxLabelBytes)
		e.Data = d
		return e, !l.Full
	}
	return e, true
}

func (l *Limiter) start(e Event, d BlockStart) (Event, bool) {
	if l.Full {
		return e, false
	}
	d.Block = bounded(d.Block, 0)
	d.Block.Images = l.images(d.Block.Images)
	l.opened(e.ConversationID, d.Block.ID).Text = int64(len(d.Block.Content)) + d.Block.TruncatedBytes
	e.Data = d
	return e, true
}

func (l *Limiter) delta(e Event, d TextDelta) (Event, bool) {
	if l.Full {
		return e, false
	}
	d.BlockID = BoundedID(d.BlockID)
	b := l.opened(e.ConversationID, d.BlockID)
	room := max(0, MaxBlockBytes-b.Text)
	b.Text += int64(len(d.Delta))
	if int64(len(d.Delta)) > room {
		d.Delta = head(d.Delta, int(room))
	}
	e.Data = d
	return e, d.Delta != ""
}

func (l *Limiter) update(e Event, d BlockUpdate) (Event, bool) {
	d.BlockID = BoundedID(d.BlockID)
	at := l.find(e.ConversationID, d.BlockID)
	closes := d.Updates.Status != "" && !d.Updates.Status.Open()
	if l.Full && !closes {
		return e, false
	}
	if l.Full {
		return l.shut(e, at, d.Updates.Status)
	}
	var left int64
	d.Updates.Input, left = boundedJSON(d.Updates.Input)
	d.Updates.TruncatedBytes += left
	d.Updates.Output, left = boundedJSON(d.Updates.Output)
	d.Updates.TruncatedBytes += left
	d.Updates.Name, d.Updates.SubagentID = head(d.Updates.Name, maxLabelBytes), BoundedID(d.Updates.SubagentID)
	if closes && at >= 0 {
		d.Updates.TruncatedBytes += max(0, l.Open[at].Text-MaxBlockBytes)
		l.Open = slices.Delete(l.Open, at, at+1)
	}
	e.Data = d
	return e, true
}

func (l *Limiter) complete(e Event, d BlockComplete) (Event, bool) {
	at := l.find(e.ConversationID, BoundedID(d.Block.ID))
	if l.Full {
		return l.shut(e, at, d.Block.Status)
	}
	var shown int64
	if at >= 0 {
		shown = l.Open[at].Text
		l.Open = slices.Delete(l.Open, at, at+1)
	}
	d.Block = bounded(d.Block, shown)
	d.Block.Images = l.images(d.Block.Images)
	e.Data = d
	return e, true
}

func (l *Limiter) remove(e Event, d BlockRemoved) (Event, bool) {
	d.BlockID = BoundedID(d.BlockID)
	at := l.find(e.ConversationID, d.BlockID)
	if l.Full && at < 0 {
		return e, false
	}
	if at >= 0 {
		l.Open = slices.Delete(l.Open, at, at+1)
	}
	e.Data = d
	return e, true
}

// shut returns the end of a block in a full turn: only its status.
func (l *Limiter) shut(e Event, at int, status BlockStatus) (Event, bool) {
	if at < 0 {
		return e, false
	}
	b := l.Open[at]
	l.Open = slices.Delete(l.Open, at, at+1)
	e.Type, e.Data = EventBlockUpdate, BlockUpdate{BlockID: b.ID, Updates: Updates{Status: status, TruncatedBytes: max(0, b.Text-MaxBlockBytes)}}
	return e, true
}

func (l *Limiter) find(conversation, id string) int {
	for i := range slices.Backward(l.Open) {
		if l.Open[i].ID == id && l.Open[i].Conversation == conversation {
			return i
		}
	}
	return -1
}

// opened returns the open block with that id, and opens it if necessary.
func (l *Limiter) opened(conversation, id string) *limitedBlock {
	if at := l.find(conversation, id); at >= 0 {
		return &l.Open[at]
	}
	if len(l.Open) >= maxLimited {
		l.evicted = append(l.evicted, l.Open[0])
		l.Open = slices.Delete(l.Open, 0, 1)
	}
	l.Open = append(l.Open, limitedBlock{Conversation: conversation, ID: id})
	return &l.Open[len(l.Open)-1]
}

// bounded returns a block within the bounds; shown is the size of its deltas' text.
func bounded(b Block, shown int64) Block {
	b.ID, b.ToolUseID, b.SubagentID = BoundedID(b.ID), BoundedID(b.ToolUseID), BoundedID(b.SubagentID)
	b.Name, b.Subtype, b.Author = head(b.Name, maxLabelBytes), head(b.Subtype, maxLabelBytes), head(b.Author, maxLabelBytes)
	if whole := max(int64(len(b.Content)), shown); whole > MaxBlockBytes {
		b.Content = head(b.Content, MaxBlockBytes)
		b.TruncatedBytes += whole - int64(len(b.Content))
	}
	if len(b.Message) > MaxBlockBytes {
		whole := len(b.Message)
		b.Message = head(b.Message, MaxBlockBytes)
		b.TruncatedBytes += int64(whole - len(b.Message))
	}
	var left int64
	b.Input, left = boundedJSON(b.Input)
	b.TruncatedBytes += left
	b.Output, left = boundedJSON(b.Output)
	b.TruncatedBytes += left
	return b
}

// boundedJSON returns raw if it is within the bound, otherwise a JSON string with its beginning,
// and the number of omitted bytes.
func boundedJSON(raw json.RawMessage) (json.RawMessage, int64) {
	if len(raw) <= MaxBlockBytes {
		return raw, 0
	}
	text := string(raw)
	if raw[0] == '"' {
		_ = json.Unmarshal(raw, &text) // other JSON than a string is truncated as written
	}
	kept := head(text, MaxBlockBytes)
	short, err := Encode(kept)
	if err != nil { // a string can always be encoded
		return nil, int64(len(raw))
	}
	return short, int64(len(text) - len(kept))
}

// BoundedID returns an agent's id in the form of events.
func BoundedID(id string) string {
	if len(id) <= MaxIDBytes {
		return id
	}
	sum := sha256.Sum256([]byte(id))
	return head(id, MaxIDBytes-1-2*len(sum)) + "~" + hex.EncodeToString(sum[:])
}

// head returns at most n bytes of s, truncated between characters.
func head(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return strings.Clone(s[:n]) // the omitted part must not stay in memory
}

// AppendText appends to the text of an open block as much as a Limiter allows, since more need not
// be kept.
func AppendText(text []byte, words string) []byte {
	room := MaxBlockBytes + utf8.UTFMax - len(text) // so that the end of the last character can be found
	return append(text, words[:min(len(words), max(0, room))]...)
}
