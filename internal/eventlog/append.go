package eventlog

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/sethvargo/go-retry"

	"github.com/overwinter-dev/overwinter/internal/backoff"
	"github.com/overwinter-dev/overwinter/internal/failure"
)

// Store commits batches of appends. Both methods write a batch in one transaction, except for the
// appends with an error in the first result. The second result means that nothing was written; with
// the code unavailable a retry may succeed. A batch whose response was lost can be repeated without
// writing anything twice.
type Store interface {
	// EventsAppend waits, for a few seconds at most, for a session that another transaction has
	// locked.
	EventsAppend(ctx context.Context, appends []Append) ([]error, error)
	// EventsTryAppend does not wait: appends to a session that another transaction has locked, or
	// that does not exist, get ErrBusy.
	EventsTryAppend(ctx context.Context, appends []Append) ([]error, error)
	EventsPosition(ctx context.Context, sessionID string) (int64, error)
}

// ErrStopped means that the appender is stopped. Earlier appends were either committed or also
// returned this error.
var ErrStopped = errors.New("eventlog: the appender is stopped")

// AppenderOptions configure an appender.
type AppenderOptions struct {
	// Interval and MaxInterval bound the pause after a commit that several appends shared. The
	// pause is as long as that commit, and at least a millisecond for each of its appends, so that
	// commits take at most half of the time. A commit costs less per append if more appends share
	// it. After a commit of a single append there is no pause. Default 3ms and 12ms.
	Interval    time.Duration
	MaxInterval time.Duration
	// MaxBatch bounds the appends of one commit. Default 256.
	MaxBatch int
	// MaxEvents bounds the events of one commit; a single append may have more.
	// Default 4096.
	MaxEvents int
	// MaxBytes bounds the data of one commit; a single append may have more.
	// Default 8 MiB.
	MaxBytes int
	// MaxQueued and MaxQueuedBytes bound the appends of one session that wait for a commit; further calls of
	// Append for that session wait until there is room, other sessions are unaffected. Default
	// 64 appends, 16 MiB; a single append may have more.
	MaxQueued      int
	MaxQueuedBytes int
	// MaxCommits bounds the concurrent commits. A second one begins only if it is large, or while the
	// first is slow.
	// Default 4.
	MaxCommits int
	// MaxLockWaits bounds the additional commits that wait for a session that another transaction
	// has locked, each for a single session. Default 2.
	MaxLockWaits int
	// CommitTimeout bounds one commit, after which the connection is closed. Default 15s.
	CommitTimeout time.Duration
	// Committed is called after each attempt to commit, with the time it took. Default: nothing is
	// called.
	Committed func(took time.Duration, err error)
	// Logger receives retries. Default: nothing is logged.
	Logger *slog.Logger
}

func (o AppenderOptions) withDefaults() AppenderOptions {
	for _, d := range []struct {
		value    *int
		fallback int
	}{
		{&o.MaxBatch, 256},
		{&o.MaxEvents, 4096},
		{&o.MaxBytes, 8 << 20},
		{&o.MaxQueued, 64},
		{&o.MaxQueuedBytes, 16 << 20},
		{&o.MaxCommits, 4},
		{&o.MaxLockWaits, 2},
	} {
		if *d.value == 0 {
			*d.value = d.fallback
		}
	}
	if o.Interval == 0 {
		o.Interval = 3 * time.Millisecond
	}
	if o.MaxInterval == 0 {
		o.MaxInterval = max(o.Interval, 12*time.Millisecond)
	}
	if o.CommitTimeout == 0 {
		o.CommitTimeout = 15 * time.Second
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

const (
	// slowCommit is how long a commit runs before another one may start concurrently. Until then,
	// batches grow instead, which costs the server less.
	slowCommit = 100 * time.Millisecond
	// stalledCommit distinguishes a commit that failed because a session in it was stuck from one
	// that was refused: the next attempt has half the sessions.
	stalledCommit = 2 * time.Second
)

// Backoff after a transient failure of a commit, and of a busy session.
const (
	minBackoff = 10 * time.Millisecond
	maxBackoff = time.Second
)

// newPauses returns the backoff between attempts to read or to listen.
func newPauses() retry.Backoff { return backoff.New(minBackoff, maxBackoff) }

// Appender commits events of many sessions together. Appends of one session are committed in the
// order in which Append was called, if the caller waits for each before the next. It is safe for
// concurrent use. Appends wait until Start is called. See the package documentation for what
// sessions share.
type Appender struct {
	store   Store
	options AppenderOptions
	// wake has room for one: the loop checks everything when it wakes.
	wake chan struct{}

	mu       sync.Mutex
	schedule schedule

	lifecycle sync.Mutex
	cancel    context.CancelCauseFunc // nil before Start
	stopped   chan struct{}           // closed by Stop
	done      chan struct{}           // closed when the loop has ended
}

// pending is an append whose caller is waiting.
type pending struct {
	ctx    context.Context //nolint:containedctx // of the caller, who waits until it ends
	append Append
	bytes  int
	result chan error // room for one: a commit never waits for a caller that has returned

	// most bounds the sessions that share its next commit; 0 for no limit.
	most int
	// alone means that no other append shares the next commit of this append, since this append may
	// be the refused one.
	alone bool
}

// NewAppender returns an appender that is not started.
func NewAppender(store Store, options AppenderOptions) *Appender {
	options = options.withDefaults()
	return &Appender{
		store: store, options: options,
		schedule: schedule{options: options, queues: map[string]*queue{}},
		wake:     make(chan struct{}, 1),
		stopped:  make(chan struct{}),
		done:     make(chan struct{}),
	}
}

// Start starts committing. Calls after the first, or after Stop, have no effect.
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

// Stop commits waiting appends, fails those that are not committed before ctx ends with ErrStopped,
// and returns when the appender is idle. It may be called before Start and more than once.
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

func (a *Appender) isStopped() bool { return isClosed(a.stopped) }

// Append returns when the events are committed, or ErrFenced if a newer generation or attempt has
// taken over and nothing was written. If Postgres is unreachable it retries until ctx ends. Then
// the events may or may not have been committed, and it is safe to append them again.
func (a *Appender) Append(ctx context.Context, add Append) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	p := &pending{ctx: ctx, append: add, bytes: add.size(), result: make(chan error, 1)}
	for {
		a.mu.Lock()
		if a.isStopped() {
			a.mu.Unlock()
			return ErrStopped
		}
		room := a.schedule.add(p)
		a.mu.Unlock()
		if room == nil {
			break
		}
		select {
		case <-room:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-a.stopped:
			return ErrStopped
		}
	}
	a.signal()
	select {
	case err := <-p.result:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-a.done:
		// The loop may have sent a result before it ended.
		select {
		case err := <-p.result:
			return err
		default:
			return ErrStopped
		}
	}
}

// signal makes the loop check the schedule.
func (a *Appender) signal() {
	select {
	case a.wake <- struct{}{}:
	default: // the loop is about to wake
	}
}

// Position returns the newest seq of a session, or 0 before the first event.
func (a *Appender) Position(ctx context.Context, sessionID string) (int64, error) {
	return a.store.EventsPosition(ctx, sessionID)
}

// run starts the commits of the schedule until Stop and the last commit.
func (a *Appender) run(ctx context.Context) {
	var commits sync.WaitGroup
	defer close(a.done)
	defer commits.Wait()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		a.mu.Lock()
		stopping := a.isStopped()
		next, wait := a.schedule.next(time.Now(), stopping)
		idle := a.schedule.idle()
		a.mu.Unlock()
		if next != nil {
			commits.Go(func() { a.commit(ctx, next) })
			continue
		}
		if stopping && idle {
			return
		}
		stopped := a.stopped
		if stopping {
			stopped = nil // handled once
		}
		timer.Reset(wait)
		select {
		case <-a.wake:
		case <-timer.C:
		case <-stopped:
		case <-ctx.Done():
			a.abandon(context.Cause(ctx))
			return
		}
	}
}

// abandon fails all waiting appends; commits in progress return their own results.
func (a *Appender) abandon(cause error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, p := range a.schedule.drain() {
		p.result <- cause
	}
}

// commit attempts to commit a batch once and returns its appends to their callers or to the
// schedule.
func (a *Appender) commit(ctx context.Context, b *batch) {
	appends := make([]Append, len(b.pending))
	for i, p := range b.pending {
		appends[i] = p.append
	}
	try := a.store.EventsTryAppend
	if b.waitsForLock {
		try = a.store.EventsAppend
	}
	limited, cancel := context.WithTimeout(ctx, a.options.CommitTimeout)
	began := time.Now()
	verdicts, err := try(limited, appends)
	cancel()
	if a.options.Committed != nil {
		a.options.Committed(time.Since(began), err)
	}
	if err != nil && ctx.Err() == nil && failure.CodeOf(err) == failure.Unavailable {
		a.options.Logger.WarnContext(ctx, "could not commit events; retrying", slog.Any("error", err),
			slog.Int("appends", len(b.pending)), slog.Int("sessions", len(b.queues)), slog.Bool("lock_wait", b.waitsForLock))
	}
	a.mu.Lock()
	if ctx.Err() != nil && err != nil {
		for _, p := range b.pending {
			p.result <- context.Cause(ctx)
		}
		b.pending, err, verdicts = nil, nil, nil
	}
	a.schedule.finished(b, verdicts, err, time.Now())
	a.mu.Unlock()
	a.signal()
}

// size estimates the bytes of an append in memory and on the wire.
func (a *Append) size() int {
	const overhead = 128 // ids, times, columns
	n := overhead + len(a.State)
	for i := range a.Events {
		n += overhead + len(a.Events[i].Data)
	}
	for i := range a.Questions {
		n += overhead + len(a.Questions[i].Asked.Input)
	}
	return n
}
