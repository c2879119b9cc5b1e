// Package sharedread lets callers that read the same thing at the same time share one read. If hundreds of clients
// open streams of one session at once, for example after their connection was lost, each would otherwise read the
// session for itself, and its goroutine would keep the deep stack of a database call for as long as the stream is open.
package sharedread

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"
)

// patience is how long callers wait for a read that began too early for them before theirs begins alongside.
const patience = time.Second

// Reads are the reads of values by their keys. It is safe for concurrent use.
//
// A caller gets the result of a read that began after its call, so it sees everything that was committed before.
// Callers that come while a key is being read share the next read, which begins when that one has ended, or after
// a second if it hangs.
type Reads[V any] struct {
	read func(ctx context.Context, key string) (V, error)

	mu    sync.Mutex
	calls map[string]*call[V] // the newest read of each key that has begun and not ended
}

// call is one read. The lock of the Reads guards callers, begun and next; the result is not changed once done is closed.
type call[V any] struct {
	ctx    context.Context //nolint:containedctx // that of the first caller, without its end
	cancel context.CancelFunc

	callers int
	begun   bool
	next    *call[V] // of callers that came after this one had begun

	done  chan struct{}
	value V
	err   error
	panic error
}

// New returns Reads that call read, which reads the value of a key. Callers share its results and must not change
// them. Its context has the values of one caller's, and ends when no caller waits any more.
func New[V any](read func(ctx context.Context, key string) (V, error)) *Reads[V] {
	return &Reads[V]{read: read, calls: map[string]*call[V]{}}
}

// Get returns the value of a key. Errors: those of the read; the cause of ctx if it ends first.
func (r *Reads[V]) Get(ctx context.Context, key string) (V, error) {
	c, waits := r.join(ctx, key)
	var impatient <-chan time.Time
	if waits {
		timer := time.NewTimer(patience)
		defer timer.Stop()
		impatient = timer.C
	}
	for {
		select {
		case <-c.done:
			if c.panic != nil {
				panic(c.panic)
			}
			return c.value, c.err
		case <-impatient:
			r.hasten(key, c)
		case <-ctx.Done():
			r.leave(c)
			var none V
			return none, context.Cause(ctx)
		}
	}
}

// join adds a caller to a read that has not begun, and begins one if the key is not being read. It reports whether
// the read waits for another one.
func (r *Reads[V]) join(ctx context.Context, key string) (c *call[V], waits bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	current := r.calls[key]
	switch {
	case current == nil:
		c = newCall[V](ctx)
		r.begin(key, c)
	case current.next == nil:
		current.next = newCall[V](ctx)
		c, waits = current.next, true
	default:
		c, waits = current.next, true
	}
	c.callers++
	return c, waits
}

func newCall[V any](ctx context.Context) *call[V] {
	c := &call[V]{done: make(chan struct{})}
	c.ctx, c.cancel = context.WithCancel(context.WithoutCancel(ctx))
	return c
}

// begin begins a read, which later callers of its key do not share. The caller holds mu.
func (r *Reads[V]) begin(key string, c *call[V]) {
	c.begun = true
	r.calls[key] = c
	go r.run(key, c)
}

// hasten begins a read without waiting for the one before it.
func (r *Reads[V]) hasten(key string, c *call[V]) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if before := r.calls[key]; before != nil && before.next == c {
		before.next = nil
		r.begin(key, c)
	}
}

// leave removes a caller that no longer waits.
func (r *Reads[V]) leave(c *call[V]) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c.callers--
	if c.callers == 0 && c.begun {
		c.cancel()
	}
}

// run reads. A panic is passed on to the callers, whose requests it concerns.
func (r *Reads[V]) run(key string, c *call[V]) {
	c.err = errors.New("sharedread: the read has exited its goroutine")
	defer r.finish(key, c)
	defer func() {
		if p := recover(); p != nil {
			c.panic = fmt.Errorf("%v\n\n%s", p, debug.Stack())
		}
	}()
	c.value, c.err = r.read(c.ctx, key)
}

// finish gives the result of a read to its callers, and begins the next read of its key.
func (r *Reads[V]) finish(key string, c *call[V]) {
	c.cancel()
	close(c.done)
	r.mu.Lock()
	defer r.mu.Unlock()
	switch next := c.next; {
	case r.calls[key] != c: // another one was hastened
	case next == nil || next.callers == 0:
		delete(r.calls, key)
	default:
		r.begin(key, next)
	}
}
