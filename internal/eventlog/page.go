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

// Format is the encoding of events for readers. An event is encoded once for all its readers: the
// bytes that Head appends, its data as stored, and Tail.
type Format struct {
	// Head appends the bytes that precede the data of an event. Default: none.
	Head func(dst []byte, e *Event) []byte
	// Tail follows the data.
	Tail string
	// Mark selects events that must be reported to the server of a reader; see Batch.Marked.
	// Default: none.
	Mark func(e *Event) bool
}

// Batch contains consecutive encoded events, which a reader gets together.
type Batch struct {
	// After is the position before the first event, and Last that of the last one. They are equal if
	// there are no events.
	After, Last int64
	// Frames are the encoded events. Other readers share them: they must not be modified, and they
	// are valid until the next call of Next.
	Frames []byte
	// Marked reports whether the format's Mark selects one of the events.
	Marked bool
	// CaughtUp reports that there were no later events when these were read.
	CaughtUp bool
	// Dropped reports that the events of the range have been dropped, but others before and after
	// it have not. The batch contains no events.
	Dropped bool
}

// Len returns the number of events.
func (b *Batch) Len() int {
	if b.Dropped {
		return 0
	}
	return int(b.Last - b.After)
}

// Page collects consecutive events of one session. A Source adds them in order.
type Page struct {
	// The page contains the events of SessionID after a position, through Through.
	SessionID string
	After     int64
	Through   int64
	// Limit and Bytes bound the page: at most Limit events, ending with the one with which their
	// data reaches Bytes.
	Limit, Bytes int

	format *Format
	frames []byte
	ends   []uint32 // end offset of each event's frame
	marks  []int64  // positions of marked events
	data   int      // bytes of added data
	sparse bool     // missing events between two others form a hole
	holes  []hole   // in order

	first, newest int64     // positions of the oldest and the newest event of the session
	filled        time.Time // for a chunk of a tail: when its last event was added
	err           error     // why the session cannot be read
}

// hole is a range of events that have been dropped.
type hole struct {
	before int   // number of events of the page before it
	to     int64 // the last position of the range
}

// NewPage returns an empty page for the events after a position.
func NewPage(format *Format, sessionID string, after int64) *Page {
	p := &Page{format: format}
	p.Reset(sessionID, after)
	return p
}

// Reset empties the page for the events after a position. Earlier batches of the page become
// invalid.
func (p *Page) Reset(sessionID string, after int64) {
	if cap(p.frames) > 4*PageBytes {
		p.frames = nil // grown by a large event
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

// Found returns the recorded positions of the session, or the reason why it cannot be read.
func (p *Page) Found() (Bounds, error) { return Bounds{First: p.first, Newest: p.newest}, p.err }

// Add appends an event and copies its data. If an event does not directly follow the last one, the
// events in between have been dropped. A tail has no holes: its page restarts with that event.
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

// appendLine appends JSON as one line. Line breaks in valid JSON are insignificant white space.
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

// complete adds the hole at the end of a page that did not reach its bounds: positions without an
// event have been dropped.
func (p *Page) complete() {
	through := min(p.Through, p.newest)
	if p.sparse && len(p.ends) < p.Limit && p.data < p.Bytes && p.last() < through {
		p.holes = append(p.holes, hole{before: len(p.ends), to: through})
	}
}

// last returns the newest position of the page, or After.
func (p *Page) last() int64 {
	if n := len(p.holes); n > 0 {
		return p.holes[n-1].to + int64(len(p.ends)-p.holes[n-1].before)
	}
	return p.After + int64(len(p.ends))
}

// piece returns a part of a page that may have holes: the events between two holes, or a hole.
// Parts with even numbers are events, possibly none. ok is false after the last part.
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

// end returns the end offset of the frames of the first n events.
func (p *Page) end(n int) int {
	if n == 0 {
		return 0
	}
	return int(p.ends[n-1])
}

// offset returns the start offset of the frame of the event after a position. The page must have no
// holes.
func (p *Page) offset(position int64) int {
	return p.end(int(position - p.After))
}

// size estimates the bytes of the page in memory.
func (p *Page) size() int {
	const overhead = 256
	return overhead + cap(p.frames) + 4*cap(p.ends) + 8*cap(p.marks) + 16*cap(p.holes)
}

// batch returns the events after a position, about most bytes and at least one event. They are
// valid until the page is reset.
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

// jsonLines is the default format of followers.
var jsonLines = Format{
	Head: func(dst []byte, e *Event) []byte {
		return fmt.Appendf(dst, `{"seq":%d,"type":%q,"sessionId":%q,"conversationId":%q,"runId":%q,"at":%q,"data":`,
			e.Seq, e.Type, e.SessionID, e.ConversationID, e.RunID, e.At.Format(time.RFC3339Nano))
	},
	Tail: "}\n",
}
