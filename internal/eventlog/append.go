package eventlog

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/overwinter-dev/overwinter/internal/session"
)

// Store commits batches of appends. EventsAppend writes all of them in one
// transaction, save those that its first result has an error for. The second
// result means that nothing was written; a fault of code unavailable may pass.
// Repeating a batch whose answer was lost writes nothing twice.
type Store interface {
	EventsAppend(ctx context.Context, appends []Append) ([]error, error)
	EventsPosition(ctx context.Context, sessionID string) (int64, error)
}

// ErrStopped means that the appender is stopped. What it was given before is
// either committed or was answered with this error.
var ErrStopped = errors.New("eventlog: the appender is stopped")

// AppenderOptions are the choices of an appender.
type AppenderOptions struct {
	// Interval is how long a commit waits at most for as much company as the one
	// before it had; an append on its own never waits. Default 3ms.
	Interval time.Duration
	// MaxBatch bounds the appends of one commit. Default 256.
	MaxBatch int
	// MaxQueued bounds the appends that wait for a commit; further callers wait
	// until there is room. Default 1024.
	MaxQueued int
	// MaxEvents bounds the events of one commit; a single append may have more.
	// Default 4096.
	MaxEvents int
	// Logger gets retries. Default: nothing is logged.
	Logger *slog.Logger
}

func (o AppenderOptions) withDefaults() AppenderOptions {
	if o.Interval == 0 {
		o.Interval = 3 * time.Millisecond
	}
	if o.MaxBatch == 0 {
		o.MaxBatch = 256
	}
	if o.MaxQueued == 0 {
		o.MaxQueued = 1024
	}
	if o.MaxEvents == 0 {
		o.MaxEvents = 4096
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

// commitTimeout bounds one commit: a server that does not answer for that long is
// as good as away, and the connection is given up.
const commitTimeout = 30 * time.Second

// Backoff of a commit that failed and may pass.
const (
	minBackoff = 10 * time.Millisecond
	maxBackoff = time.Second
)

// Appender commits events of many sessions together. Appends of one session are
// committed in the order in which Append was called, as long as its caller waits
// for one before it makes the next. It is safe for concurrent use. Appends wait
// until Start is called.
type Appender struct {
	store   Store
	options AppenderOptions
	queue   chan *pending

	lifecycle sync.Mutex
	cancel    context.CancelCauseFunc // nil before Start
	stopped   chan struct{}           // closed by Stop
	done      chan struct{}           // closed when the loop has ended
}

// pending is an append whose caller waits.
type pending struct {
	ctx    context.Context //nolint:containedctx // it is the caller's, who waits for as long as it lasts
	append Append
	result chan error // room for one: the loop never waits for a caller that has left
}

// NewAppender returns an appender that is not started.
func NewAppender(store Store, options AppenderOptions) *Appender {
	options = options.withDefaults()
	return &Appender{
		store: store, options: options,
		// The loop takes batches from here while callers fill it: this is the backpressure.
		queue:   make(chan *pending, options.MaxQueued),
		stopped: make(chan struct{}),
		done:    make(chan struct{}),
	}
}

// Start begins to commit. Calls after the first, or after Stop, change nothing.
func (a *Appender) Start() {
	a.lifecycle.Lock()
	defer a.lifecycle.Unlock()
	if a.cancel != nil || a.isStopped() {
		return
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	a.cancel = cancel
	go a.run(ctx)
}

// Stop commits what waits, answers what cannot be committed until ctx ends with
// ErrStopped, and returns when the appender is at rest. It may be called before
// Start and again.
func (a *Appender) Stop(ctx context.Context) {
	a.lifecycle.Lock()
	if !a.isStopped() {
		close(a.stopped)
		if a.cancel == nil {
			close(a.done)
		}
	}
	cancel := a.cancel
	a.lifecycle.Unlock()
	select {
	case <-a.done:
	case <-ctx.Done():
		if cancel != nil {
			cancel(ErrStopped)
		}
		<-a.done
	}
}

func (a *Appender) isStopped() bool {
	select {
	case <-a.stopped:
		return true
	default:
		return false
	}
}

// Append returns when the events are committed, or ErrFenced when a newer
// generation or attempt has taken over and nothing was written. When Postgres
// cannot be reached it waits and tries again until ctx ends; then the events may
// have been committed or not, and appending them again is safe.
func (a *Appender) Append(ctx context.Context, add Append) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if a.isStopped() {
		return ErrStopped
	}
	p := &pending{ctx: ctx, append: add, result: make(chan error, 1)}
	select {
	case a.queue <- p:
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-a.stopped:
		return ErrStopped
	}
	select {
	case err := <-p.result:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-a.done:
		// The loop may have answered before it ended.
		select {
		case err := <-p.result:
			return err
		default:
			return ErrStopped
		}
	}
}

// Position is the newest seq of a session; 0 before the first event.
func (a *Appender) Position(ctx context.Context, sessionID string) (int64, error) {
	return a.store.EventsPosition(ctx, sessionID)
}

// run commits batch after batch. While one is under way the next gathers by
// itself. Callers that were answered together come back one after the other, so
// it waits for as many again, though not for long; an append on its own is
// committed at once.
func (a *Appender) run(ctx context.Context) {
	defer close(a.done)
	company := 1
	for {
		var batch []*pending
		select {
		case p := <-a.queue:
			batch = append(batch, p)
		case <-a.stopped:
			a.drain(ctx)
			return
		}
		batch = a.gather(batch, company)
		company = len(batch)
		a.commit(ctx, batch)
	}
}

func (a *Appender) drain(ctx context.Context) {
	for {
		select {
		case p := <-a.queue:
			a.commit(ctx, a.gather([]*pending{p}, 1))
		default:
			return
		}
	}
}

// gather adds what waits to the batch, and what comes within the interval until
// there are as many as wanted.
func (a *Appender) gather(batch []*pending, wanted int) []*pending {
	events := len(batch[0].append.Events)
	var timeout <-chan time.Time
	if wanted > 1 {
		timer := time.NewTimer(a.options.Interval)
		defer timer.Stop()
		timeout = timer.C
	}
	for len(batch) < a.options.MaxBatch && events < a.options.MaxEvents {
		select {
		case p := <-a.queue:
			batch = append(batch, p)
			events += len(p.append.Events)
			continue
		default:
		}
		if timeout == nil || len(batch) >= wanted {
			return batch
		}
		select {
		case p := <-a.queue:
			batch = append(batch, p)
			events += len(p.append.Events)
		case <-timeout:
			return batch
		case <-a.stopped:
			timeout = nil
		}
	}
	return batch
}

// commit answers every caller of the batch. It tries for as long as anybody waits.
func (a *Appender) commit(ctx context.Context, batch []*pending) {
	backoff := minBackoff
	for {
		batch = waiting(batch)
		if len(batch) == 0 {
			return
		}
		appends := make([]Append, len(batch))
		for i, p := range batch {
			appends[i] = p.append
		}
		verdicts, err := a.tryCommit(ctx, appends)
		switch {
		case err == nil:
			for i, p := range batch {
				p.result <- verdicts[i]
			}
			return
		case ctx.Err() != nil:
			answer(batch, context.Cause(ctx))
			return
		case session.CodeOf(err) != session.CodeUnavailable:
			a.refused(ctx, batch, err)
			return
		}
		a.options.Logger.WarnContext(ctx, "events could not be committed; trying again",
			slog.Any("error", err), slog.Int("appends", len(batch)), slog.Duration("backoff", backoff))
		timer := time.NewTimer(backoff)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			answer(batch, context.Cause(ctx))
			return
		}
		backoff = min(2*backoff, maxBackoff)
	}
}

func (a *Appender) tryCommit(ctx context.Context, appends []Append) ([]error, error) {
	ctx, cancel := context.WithTimeout(ctx, commitTimeout)
	defer cancel()
	return a.store.EventsAppend(ctx, appends)
}

// refused answers a batch that will not be committed as it is. One append that
// cannot be stored must not take others with it: each is tried alone.
func (a *Appender) refused(ctx context.Context, batch []*pending, err error) {
	if len(batch) == 1 {
		answer(batch, err)
		return
	}
	for _, p := range batch {
		a.commit(ctx, []*pending{p})
	}
}

// waiting drops the appends whose callers have left before they were committed.
func waiting(batch []*pending) []*pending {
	var out []*pending
	for _, p := range batch {
		if p.ctx.Err() == nil {
			out = append(out, p)
		}
	}
	return out
}

func answer(batch []*pending, err error) {
	for _, p := range batch {
		p.result <- err
	}
}
