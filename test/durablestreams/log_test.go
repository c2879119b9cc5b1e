package durablestreams

import (
	"context"
	"time"

	"github.com/overwinter-dev/overwinter/internal/durablestream"
	"github.com/overwinter-dev/overwinter/internal/failure"
)

// End implements durablestream.Log.
func (st *stream) End(context.Context) (durablestream.End, error) {
	st.mu.Lock()
	defer st.mu.Unlock()
	return durablestream.End{Newest: int64(len(st.messages)), Closed: st.closed}, nil
}

// Follow implements durablestream.Log.
func (st *stream) Follow(_ context.Context, after int64, beat time.Duration) (durablestream.Reader, error) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if after > int64(len(st.messages)) {
		return nil, failure.Errorf(failure.Invalid, "the position has not been written yet")
	}
	return &reader{stream: st, after: after, beat: time.After(beat)}, nil
}

type reader struct {
	stream   *stream
	after    int64
	informed bool // the reader has been informed that it is caught up
	beat     <-chan time.Time
}

// perBatch makes batches small, so that an answer needs several.
const perBatch = 3

// Next implements durablestream.Reader.
func (r *reader) Next(ctx context.Context) (durablestream.Batch, error) {
	for {
		st := r.stream
		st.mu.Lock()
		newest, closed, deleted, changed := int64(len(st.messages)), st.closed, st.deleted, st.changed
		if deleted {
			st.mu.Unlock()
			return durablestream.Batch{}, failure.Errorf(failure.NotFound, "the stream was deleted")
		}
		if r.after < newest || closed || !r.informed {
			last := min(r.after+perBatch, newest)
			b := durablestream.Batch{Messages: st.messages[r.after:last], Last: last, CaughtUp: last == newest, Closed: closed && last == newest}
			st.mu.Unlock()
			r.after, r.informed = last, b.CaughtUp
			return b, nil
		}
		st.mu.Unlock()
		select {
		case <-changed:
		case <-r.beat:
			return durablestream.Batch{Last: r.after}, nil
		case <-ctx.Done():
			return durablestream.Batch{}, context.Cause(ctx)
		}
	}
}

// Close implements durablestream.Reader.
func (r *reader) Close() {}
