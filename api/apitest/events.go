package apitest

import (
	"context"
	"time"

	"github.com/overwinter-dev/overwinter/internal/eventlog"
	"github.com/overwinter-dev/overwinter/internal/feed"
)

// EventsDropped implements api.Store. This store does not compact logs.
func (m *Store) EventsDropped(_ context.Context, id string) (int64, error) {
	leave, err := m.enter("EventsDropped")
	if err != nil {
		return 0, err
	}
	defer leave()
	_, err = m.get(id)
	return 0, err
}

// Follow implements feed.Log.
func (m *Store) Follow(_ context.Context, id string, after int64) (feed.Reader, error) {
	leave, err := m.enter("Follow")
	if err != nil {
		return nil, err
	}
	defer leave()
	r, err := m.get(id)
	if err != nil {
		return nil, err
	}
	if newest := r.First + int64(len(r.Events)) - 1; after > newest {
		return nil, &eventlog.FuturePositionError{Newest: newest}
	}
	m.readers++
	return &reader{store: m, id: id, after: after}, nil
}

type reader struct {
	store    *Store
	id       string
	after    int64
	reported bool
	closed   bool
}

// perBatch makes batches small, so that several are needed.
const perBatch = 3

// Next implements feed.Reader.
func (r *reader) Next(ctx context.Context, timer <-chan time.Time) (eventlog.Batch, error) {
	for {
		r.store.mu.Lock()
		row, changed, fault := r.store.rows[r.id], r.store.changed, r.store.faults["Next"]
		first, newest := row.First, row.First+int64(len(row.Events))-1
		if fault != nil {
			r.store.mu.Unlock()
			return eventlog.Batch{}, fault
		}
		if r.after+1 < first {
			r.store.mu.Unlock()
			return eventlog.Batch{}, &eventlog.PositionGoneError{First: first}
		}
		if r.after < newest || !r.reported {
			format := feed.Format()
			page := eventlog.NewPage(&format, r.id, r.after)
			for _, e := range row.Events[r.after+1-first : min(r.after+1-first+perBatch, int64(len(row.Events)))] {
				page.Add(&e)
			}
			b := page.Batch()
			r.after = b.Last
			r.reported = r.after == newest
			b.CaughtUp = r.reported
			r.store.mu.Unlock()
			return b, nil
		}
		r.store.mu.Unlock()
		select {
		case <-changed:
		case <-timer:
			return eventlog.Batch{After: r.after, Last: r.after}, nil
		case <-ctx.Done():
			return eventlog.Batch{}, ctx.Err()
		}
	}
}

// Close implements feed.Reader.
func (r *reader) Close() {
	r.store.mu.Lock()
	defer r.store.mu.Unlock()
	if r.closed {
		panic("reader closed twice")
	}
	r.closed = true
	r.store.readers--
}
