package eventlog

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"sort"
	"time"
)

// Format is how readers get events. An event is encoded once, whatever the number of its readers: as
// what Head appends, its data as stored, and Tail.
type Format struct {
	// Head appends what precedes the data of an event. Default: nothing.
	Head func(dst []byte, e *Event) []byte
	// Tail follows the data.
	Tail string
	// Mark selects events that the code which serves a reader must know of; see Batch.Marked. Default: none.
	Mark func(e *Event) bool
}

// Batch has consecutive events, encoded, that a reader gets at once.
type Batch struct {
	// After is the position before the first event, and Last that of the last one. They are equal if
	// there are no events.
	After, Last int64
	// Frames are the encoded events. Other readers share them: they must not be changed, and they are
	// valid until the next call of Next.
	Frames []byte
	// Marked reports whether the format marks one of the events.
	Marked bool
	// CaughtUp reports that there were no further events when these were read.
	CaughtUp bool
	// Dropped reports that the events of the range are not kept, and others before and after it are. The batch has nothing
	// else.
	Dropped bool
}

// Len is the number of events.
func (b *Batch) Len() int {
	if b.Dropped {
		return 0
	}
	return int(b.Last - b.After)
}

// Page collects consecutive events of one session. A Source adds them in order.
type Page struct {
	// The page has the events of SessionID after a position, up to and including Through.
	SessionID string
	After     int64
	Through   int64
	// Limit and Bytes bound what is read: at most Limit events, ending with the one that brings their
	// data to Bytes.
	Limit, Bytes int

	format *Format
	frames []byte
	ends   []uint32 // where the frame of each event ends
	marks  []int64  // positions of marked events
	data   int      // bytes of data that were added
	sparse bool     // deleted events between two others are a hole
	holes  []hole   // in order

	first, newest int64     // positions of the oldest and the newest event of the session
	filled        time.Time // of a chunk of a tail: when its last event was added
	err           error     // why the session cannot be read
}

// hole is a range of events that are not kept.
type hole struct {
	before int   // how many events of the page precede it
	to     int64 // the last position of the range
}

// NewPage returns an empty page for the events after a position.
func NewPage(format *Format, sessionID string, after int64) *Page {
	p := &Page{format: format}
	p.Reset(sessionID, after)
	return p
}

// Reset empties the page for the events after a position. The events that were read are no longer
// valid.
func (p *Page) Reset(sessionID string, after int64) {
	if cap(p.frames) > 4*PageBytes {
		p.frames = nil // it had a large event
	}
	*p = Page{
		SessionID: sessionID, After: after, Through: math.MaxInt64, Limit: pageEvents, Bytes: PageBytes,
		format: p.format, frames: p.frames[:0], ends: p.ends[:0], marks: p.marks[:0], holes: p.holes[:0],
	}
}

// Bounds records the positions of the session's oldest and newest event. A session without events
// has 1 and 0. The source calls it once for each session that exists, before it adds events.
func (p *Page) Bounds(first, newest int64) { p.first, p.newest = first, newest }

// Fail records that the session cannot be read.
func (p *Page) Fail(err error) { p.err = err }

// Found returns the positions that were recorded of the session, or why it cannot be read.
func (p *Page) Found() (Bounds, error) { return Bounds{First: p.first, Newest: p.newest}, p.err }

// Add appends an event. Its data is copied. Where an event does not follow the last one, those in between are not kept. A tail
// has no holes: its page begins again with that event.
func (p *Page) Add(e *Event) {
	switch {
	case e.Seq == p.last()+1:
	case p.sparse:
		p.holes = append(p.holes, hole{before: len(p.ends), to: e.Seq - 1})
	default:
		p.After = e.Seq - 1
		p.frames, p.ends, p.marks = p.frames[:0], p.ends[:0], p.marks[:0]
	}
	p.data += len(e.Data)
	if p.format.Head != nil {
		p.frames = p.format.Head(p.frames, e)
	}
	p.frames = appendLine(p.frames, e.Data)
	p.frames = append(p.frames, p.format.Tail...)
	p.ends = append(p.ends, uint32(len(p.frames)))
	if p.format.Mark != nil && p.format.Mark(e) {
		p.marks = append(p.marks, e.Seq)
	}
}

// appendLine appends JSON on one line. A line break in valid JSON is insignificant white space.
func appendLine(dst []byte, data json.RawMessage) []byte {
	if bytes.IndexByte(data, '\n') < 0 && bytes.IndexByte(data, '\r') < 0 {
		return append(dst, data...)
	}
	for _, c := range data {
		if c == '\n' || c == '\r' {
			c = ' '
		}
		dst = append(dst, c)
	}
	return dst
}

// complete adds the hole at the end of a page whose bounds were not reached: what the log has no event of is not kept.
func (p *Page) complete() {
	through := min(p.Through, p.newest)
	if p.sparse && len(p.ends) < p.Limit && p.data < p.Bytes && p.last() < through {
		p.holes = append(p.holes, hole{before: len(p.ends), to: through})
	}
}

// last is the newest position of the page, or After.
func (p *Page) last() int64 {
	if n := len(p.holes); n > 0 {
		return p.holes[n-1].to + int64(len(p.ends)-p.holes[n-1].before)
	}
	return p.After + int64(len(p.ends))
}

// piece returns a part of a page that may have holes: events between two holes, or a hole. Parts with even numbers are
// events, of which there may be none. ok is false after the last part.
func (p *Page) piece(n int) (b Batch, ok bool) {
	at := n / 2
	if at > len(p.holes) || at == len(p.holes) && n%2 == 1 {
		return Batch{}, false
	}
	begin, end := 0, len(p.ends)
	b.After = p.After
	if at > 0 {
		begin, b.After = p.holes[at-1].before, p.holes[at-1].to
	}
	if at < len(p.holes) {
		end = p.holes[at].before
	}
	b.Last = b.After + int64(end-begin)
	if n%2 == 1 {
		return Batch{After: b.Last, Last: p.holes[at].to, Dropped: true}, true
	}
	from, to := p.end(begin), p.end(end)
	b.Frames = p.frames[from:to:to]
	b.Marked = slices.ContainsFunc(p.marks, func(seq int64) bool { return seq > b.After && seq <= b.Last })
	return b, true
}

// end is where the frames of the first n events end.
func (p *Page) end(n int) int {
	if n == 0 {
		return 0
	}
	return int(p.ends[n-1])
}

// offset is where the frame of the event after a position begins. The page has no holes.
func (p *Page) offset(position int64) int {
	return p.end(int(position - p.After))
}

// size estimates the bytes of the page in memory.
func (p *Page) size() int {
	const overhead = 256
	return overhead + cap(p.frames) + 4*cap(p.ends) + 8*cap(p.marks) + 16*cap(p.holes)
}

// batch returns the events after a position, about most bytes of them and at least one. They are
// valid as long as the page is not reset.
func (p *Page) batch(after int64, most int) Batch {
	begin, last := p.offset(after), p.last()
	if len(p.frames)-begin > most {
		n := sort.Search(len(p.ends), func(i int) bool { return int(p.ends[i])-begin > most })
		last = max(after+1, p.After+int64(n))
	}
	end := p.offset(last)
	return Batch{
		After: after, Last: last, Frames: p.frames[begin:end:end],
		Marked: slices.ContainsFunc(p.marks, func(seq int64) bool { return seq > after && seq <= last }),
	}
}

// Batch returns all events of the page.
func (p *Page) Batch() Batch { return p.batch(p.After, math.MaxInt) }

// jsonLines is the format of followers that are given none.
var jsonLines = Format{
	Head: func(dst []byte, e *Event) []byte {
		return fmt.Appendf(dst, `{"seq":%d,"type":%q,"sessionId":%q,"conversationId":%q,"runId":%q,"at":%q,"data":`,
			e.Seq, e.Type, e.SessionID, e.ConversationID, e.RunID, e.At.Format(time.RFC3339Nano))
	},
	Tail: "}\n",
}
