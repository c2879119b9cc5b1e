package eventlog

import (
	"slices"
	"time"
)

const (
	// minChunk and maxChunk bound the size of a chunk, except one with a single larger event.
	minChunk = 1 << 10
	maxChunk = 64 << 10
)

// tail stores the newest events of one session in memory, encoded: exactly those after start
// through newest, without gaps. It is not safe for concurrent use, but the frames of a batch may be
// read while events are added: a chunk is filled but never moved.
type tail struct {
	start, newest int64
	chunks        []*Page
	bytes         int
}

// holds reports whether the event after a position is in memory.
func (t *tail) holds(position int64) bool { return position >= t.start && position < t.newest }

// reset empties the tail; the next event has the position after newest.
func (t *tail) reset(newest int64) {
	*t = tail{start: newest, newest: newest}
}

// read returns events after a position that the tail holds, from at most one chunk.
func (t *tail) read(after int64) Batch {
	// Readers are mostly near the end.
	at := len(t.chunks) - 1
	for t.chunks[at].After > after {
		at--
	}
	return t.chunks[at].batch(after, maxChunk)
}

// append adds the events of a page. If the page does not follow the newest event, events before it
// no longer exist, and the tail restarts with the page.
func (t *tail) append(p *Page) {
	if p.After != t.newest {
		t.reset(p.After)
	}
	now := time.Now()
	for from := p.After; from < p.last(); {
		chunk := t.room(p, from)
		// As many events as fit; room has ensured space for one.
		free := cap(chunk.frames) - len(chunk.frames)
		begin, to := p.offset(from), from+1
		for to < p.last() && p.offset(to+1)-begin <= free {
			to++
		}
		before := chunk.size()
		shift := len(chunk.frames) - begin
		chunk.frames = append(chunk.frames, p.frames[begin:p.offset(to)]...)
		for seq := from; seq < to; seq++ {
			chunk.ends = append(chunk.ends, uint32(int(p.ends[seq-p.After])+shift))
		}
		for _, mark := range p.marks {
			if mark > from && mark <= to {
				chunk.marks = append(chunk.marks, mark)
			}
		}
		chunk.filled = now
		t.bytes += chunk.size() - before
		from = to
	}
	t.newest = p.last()
}

// room returns the last chunk if the frame of the page's event after a position fits, otherwise a
// new one. Chunks grow with the traffic of the session.
func (t *tail) room(p *Page, after int64) *Page {
	frame, size := p.offset(after+1)-p.offset(after), minChunk
	if n := len(t.chunks); n > 0 {
		last := t.chunks[n-1]
		if cap(last.frames)-len(last.frames) >= frame {
			return last
		}
		size = 2 * cap(last.frames)
	}
	size = max(frame, min(max(size, len(p.frames)-p.offset(after)), maxChunk))
	chunk := &Page{After: after, frames: make([]byte, 0, size)}
	t.chunks = append(t.chunks, chunk)
	t.bytes += chunk.size()
	return chunk
}

// prepend adds a copy of a page that ends where the tail begins.
func (t *tail) prepend(p *Page) {
	chunk := p.from(p.After)
	chunk.filled = time.Now()
	t.chunks = slices.Insert(t.chunks, 0, chunk)
	t.start = p.After
	t.bytes += chunk.size()
}

// from returns a copy of the events of a page after a position.
func (p *Page) from(after int64) *Page {
	begin := p.offset(after)
	out := &Page{After: after, filled: p.filled, frames: slices.Clone(p.frames[begin:])}
	for _, end := range p.ends[after-p.After:] {
		out.ends = append(out.ends, end-uint32(begin))
	}
	for _, mark := range p.marks {
		if mark > after {
			out.marks = append(out.marks, mark)
		}
	}
	return out
}

// trim drops the oldest events until the tail has at most the given number of bytes. The newest
// chunk stays if keep is set.
func (t *tail) trim(bytes int, keep bool) {
	droppable := len(t.chunks)
	if keep {
		droppable--
	}
	drop := 0
	for t.bytes > bytes && drop < droppable {
		t.bytes -= t.chunks[drop].size()
		drop++
	}
	t.drop(drop)
}

// age drops the oldest events that were added before a time, while the tail has more than the given
// number of bytes.
func (t *tail) age(before time.Time, bytes int) {
	drop := 0
	for t.bytes > bytes && drop < len(t.chunks)-1 && t.chunks[drop].filled.Before(before) {
		t.bytes -= t.chunks[drop].size()
		drop++
	}
	t.drop(drop)
}

// forget drops all events before a position, which have been deleted.
func (t *tail) forget(first int64) {
	if first-1 <= t.start {
		return
	}
	drop := 0
	for drop < len(t.chunks) && t.chunks[drop].last() < first {
		t.bytes -= t.chunks[drop].size()
		drop++
	}
	t.drop(drop)
	if len(t.chunks) == 0 || t.chunks[0].After >= first-1 {
		return
	}
	// Deleted events must not stay in memory: the chunk is replaced by one without them.
	old := t.chunks[0]
	kept := old.from(first - 1)
	t.chunks[0], t.start = kept, first-1
	t.bytes += kept.size() - old.size()
}

func (t *tail) drop(n int) {
	if n == 0 {
		return
	}
	t.chunks = slices.Delete(t.chunks, 0, n)
	if len(t.chunks) == 0 {
		t.reset(t.newest)
		return
	}
	t.start = t.chunks[0].After
}
