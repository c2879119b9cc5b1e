package eventlog

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// Reader follows one session's log. Next must be called by one goroutine at a time; Close by any.
type Reader struct {
	follower *Follower
	topic    *topic
	position int64 // the newest seq that Next has returned
	target   int64 // the newest seq when the reader began
	caughtUp bool  // CaughtUp has been reported

	// A reader at a position before the tail reads pages, one of them ahead if the follower's bound
	// of such pages permits it.
	fetching chan *Page  // receives the page that is being read
	after    int64       // the position after which it was requested
	ahead    atomic.Bool // it is read ahead, and counted as such
	page     *Page       // contains the last returned events; nil if they are from the tail
	piece    int         // the number of the next piece of the page
	limit    int         // number of events to read at a time, based on the size of earlier ones

	closing sync.Once
	closed  chan struct{}
}

// Next returns the next events, in order, each once. CaughtUp is set in the first batch that
// reaches the end of the log, which may be empty; from then on Next waits for new events. It
// returns an empty batch when the timer fires; a nil timer never does. If Postgres is unreachable
// it retries until ctx ends. Dropped events between others are returned as a separate batch with
// Dropped set. Errors: the cause of ctx, *PositionGoneError if retention has overtaken the reader,
// session_not_found if the session was deleted, ErrFollowerStopped, ErrReaderClosed.
func (r *Reader) Next(ctx context.Context, timer <-chan time.Time) (Batch, error) {
	for {
		if err := r.ended(ctx); err != nil {
			return Batch{}, err
		}
		b, rest := r.next()
		t := r.topic
		t.mu.Lock()
		err, changed, start, newest := t.err, t.changed, t.tail.start, t.tail.newest
		if err == nil && !rest && t.tail.holds(r.position) {
			b = t.tail.read(r.position)
		}
		t.mu.Unlock()
		switch {
		case err != nil:
			return Batch{}, err
		case rest || b.Len() > 0:
			return r.advance(b, newest), nil
		case r.position >= start:
			if r.position >= r.target && !r.caughtUp {
				return r.advance(Batch{After: r.position, Last: r.position}, newest), nil
			}
		case r.fetching == nil:
			r.fetch(r.position, start)
			continue
		}
		var page *Page
		select {
		case <-changed:
			continue
		case page = <-r.fetching:
		case <-timer:
			return Batch{After: r.position, Last: r.position}, nil
		case <-ctx.Done():
			continue
		case <-r.closed:
			continue
		case <-r.follower.stopped:
			continue
		}
		r.fetching = nil
		r.uncount()
		if page == nil || r.after != r.position {
			continue // the tail contains it by now
		}
		if page.err != nil {
			return Batch{}, page.err
		}
		r.page, r.piece = page, 0
		r.limit = nextLimit(page, r.follower.options.PageEvents)
		if page.last() < start && page.last() < page.newest && r.count() {
			r.fetch(page.last(), start)
		}
	}
}

// next returns the next piece of the current page, and releases the page after the last one.
func (r *Reader) next() (b Batch, ok bool) {
	for r.page != nil {
		if b, ok = r.page.piece(r.piece); !ok {
			r.release()
			break
		}
		if r.piece++; b.Last > b.After {
			return b, true
		}
	}
	return Batch{}, false
}

// advance completes a batch before it is returned.
func (r *Reader) advance(b Batch, newest int64) Batch {
	r.position = b.Last
	b.CaughtUp = !b.Dropped && r.position >= newest && r.position >= r.target
	r.caughtUp = r.caughtUp || b.CaughtUp
	return b
}

// count counts a page to be read ahead, unless there are too many.
func (r *Reader) count() bool {
	if !r.follower.prefetch.TryAcquire(PageBytes) {
		return false
	}
	r.ahead.Store(true)
	if isClosed(r.closed) { // Close may have preceded Store
		r.uncount()
	}
	return true
}

// uncount gives the bytes of the page that was read ahead back, if there is one.
func (r *Reader) uncount() {
	if r.ahead.Swap(false) {
		r.follower.prefetch.Release(PageBytes)
	}
}

// fetch starts reading a page of events that are no longer, or not yet, in memory.
func (r *Reader) fetch(after, through int64) {
	out := make(chan *Page, 1) // a closed reader does not receive it
	r.fetching, r.after = out, after
	f := r.follower
	if r.limit == 0 {
		r.limit = min(firstLimit, f.options.PageEvents)
	}
	limit := r.limit
	if !f.background(func() { out <- r.read(after, through, limit) }) {
		r.fetching = nil
		r.uncount()
	}
}

// read reads a page after waiting for its turn among the readers. nil means that reading has ended.
func (r *Reader) read(after, through int64, limit int) *Page {
	f := r.follower
	pauses := newPauses()
	for {
		select {
		case f.catchUps <- struct{}{}:
		case <-r.closed:
			return nil
		case <-f.stopped:
			return nil
		}
		page := r.readOnce(after, through, limit)
		<-f.catchUps
		if page == nil || !isPassing(page.err) {
			return page
		}
		pause, _ := pauses.Next()
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-r.closed:
		case <-f.stopped:
		}
		timer.Stop()
	}
}

func (r *Reader) readOnce(after, through int64, limit int) *Page {
	f := r.follower
	if isClosed(r.closed) {
		return nil
	}
	// Another reader may have read the page meanwhile.
	r.topic.mu.Lock()
	held := r.topic.tail.holds(after)
	r.topic.mu.Unlock()
	if held {
		return nil
	}
	page := f.pages.Get().(*Page)
	page.Reset(r.topic.sessionID, after)
	page.Through, page.Limit, page.sparse = through, limit, true
	err := f.source.EventsRead(f.ctx, []*Page{page})
	switch {
	case err != nil:
		page.err = err
	case page.err != nil:
	case after < page.first-1:
		page.err = &PositionGoneError{First: page.first}
	case len(page.ends) == 0 && after >= page.newest:
		page.err = &FuturePositionError{Newest: page.newest}
	default:
		page.complete()
		r.lend(page)
	}
	return page
}

// firstLimit is the number of events that are read at a time before their size is known.
const firstLimit = 256

// nextLimit returns the number of events to read after a page. Postgres reads as many rows as the
// limit, even if the bytes end the page earlier. The limit is therefore about twice the number of
// events in the previous page, and grows while the limit ends pages.
func nextLimit(p *Page, most int) int {
	return min(max(2*len(p.ends), 16), most)
}

// lend adds a page to the tail if it directly precedes the tail, for other readers that resume at
// the same position.
func (r *Reader) lend(p *Page) {
	ts := r.follower.topics
	ts.mu.Lock()
	defer ts.mu.Unlock()
	t := r.topic
	t.mu.Lock()
	fits := t.err == nil && len(p.holes) == 0 && t.tail.start == p.last() && t.tail.bytes+p.size() <= ts.options.TailBytes &&
		ts.bytes+p.size() <= ts.options.MemoryBytes && ts.byID[t.sessionID] == t
	if fits {
		t.tail.prepend(p)
	}
	t.mu.Unlock()
	ts.account(t)
}

// release returns the current page to the pool.
func (r *Reader) release() {
	if r.page != nil {
		r.follower.pages.Put(r.page)
		r.page = nil
	}
}

func (r *Reader) ended(ctx context.Context) error {
	switch {
	case isClosed(r.closed):
		return ErrReaderClosed
	case isClosed(r.follower.stopped):
		return ErrFollowerStopped
	}
	return context.Cause(ctx)
}

// Position returns the newest seq that Next has returned.
func (r *Reader) Position() int64 { return r.position }

// Close releases the reader and ends a waiting Next. It may be called more than once.
func (r *Reader) Close() {
	r.closing.Do(func() {
		close(r.closed)
		r.uncount()
		r.follower.topics.leave(r.topic)
	})
}
