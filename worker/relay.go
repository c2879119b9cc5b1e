package worker

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/overwinter-dev/overwinter/internal/backlog"
	"github.com/overwinter-dev/overwinter/internal/metrics"
)

// Relay signals workflows again for work that no run has claimed. The row is durable. The signal is
// only a notification, and is lost if Temporal is unavailable or the api is killed between the two
// steps. Every worker has a relay; a repeated signal has no effect.
type Relay struct {
	Rows     Unclaimed
	Signaler PromptSignaler
	// Metrics count the signals. Default: unregistered metrics.
	Metrics *metrics.Worker
	// Every is the interval between passes. Default 2s.
	Every time.Duration
	// Age is how long a row may wait before it is signalled for again. Default 3s.
	Age time.Duration
	// Batch bounds the sessions that one pass signals. Default 200.
	Batch int
}

// Unclaimed lists work that no run has claimed, ordered by session, after a given session.
type Unclaimed interface {
	Unclaimed(ctx context.Context, after string, age time.Duration, limit int) ([]backlog.Unclaimed, error)
}

// PromptSignaler signals the workflow of a session, and starts it if necessary.
type PromptSignaler interface {
	SignalPrompt(ctx context.Context, sessionID, promptID string, ordinal int64) error
}

const (
	// signalsAtOnce bounds the concurrent signals of a relay.
	signalsAtOnce = 8
	// lookTimeout bounds one pass; a later one signals for the rest.
	lookTimeout = 10 * time.Second
)

func (r Relay) run(ctx context.Context, logger *slog.Logger) error {
	if r.Every == 0 {
		r.Every = 2 * time.Second
	}
	if r.Age == 0 {
		r.Age = 3 * time.Second
	}
	if r.Batch == 0 {
		r.Batch = 200
	}
	if r.Metrics == nil {
		r.Metrics = metrics.NewWorker(nil)
	}
	pauses := newPacer(r.Age)
	after := ""
	return repeat(ctx, r.Every, func() {
		var err error
		if after, err = r.look(ctx, logger, after, pauses); err != nil && ctx.Err() == nil {
			logger.WarnContext(ctx, "relay could not signal every workflow", slog.Any("error", err))
		}
	})
}

// look signals once for a page of unclaimed work and returns the start of the next page. A failed
// signal does not delay others, because each session has its own pause.
func (r Relay) look(ctx context.Context, logger *slog.Logger, after string, pauses *pacer) (next string, err error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	waiting, err := r.Rows.Unclaimed(ctx, after, r.Age, r.Batch)
	if err != nil {
		return after, err
	}
	if len(waiting) == r.Batch {
		next = waiting[len(waiting)-1].SessionID
	}
	var (
		all    errgroup.Group
		mu     sync.Mutex
		failed error
	)
	all.SetLimit(signalsAtOnce)
	for _, work := range pauses.due(waiting, time.Now()) {
		all.Go(func() error {
			if ctx.Err() != nil {
				return nil // not tried, so its pause does not grow
			}
			err := r.Signaler.SignalPrompt(ctx, work.SessionID, work.PromptID, work.Ordinal)
			pauses.tried(work, time.Now())
			r.Metrics.Relayed("prompt", err)
			if err != nil {
				mu.Lock()
				defer mu.Unlock()
				failed = errors.Join(failed, err)
				return nil
			}
			logger.InfoContext(ctx, "re-sent prompt signal", slog.String("session_id", work.SessionID), slog.String("prompt_id", work.PromptID))
			return nil
		})
	}
	all.Wait() //nolint:errcheck // errors are joined, so that one does not stop the others
	return next, failed
}

// longestPause is the longest pause between two signals for the same row.
const longestPause = 30 * time.Second

// pacer records the sent signals: the pause doubles with every signal for the same work, so that a
// slow system is not flooded. It is safe for concurrent use.
type pacer struct {
	first time.Duration

	mu     sync.Mutex
	pauses map[backlog.Unclaimed]pause
}

type pause struct {
	until time.Time
	next  time.Duration
}

func newPacer(first time.Duration) *pacer {
	return &pacer{first: first, pauses: map[backlog.Unclaimed]pause{}}
}

// due returns the work whose pause has ended. It drops rows that were not signalled for in a long
// time.
func (p *pacer) due(waiting []backlog.Unclaimed, now time.Time) []backlog.Unclaimed {
	p.mu.Lock()
	defer p.mu.Unlock()
	for work, was := range p.pauses {
		if now.Sub(was.until) > 2*longestPause {
			delete(p.pauses, work)
		}
	}
	var due []backlog.Unclaimed
	for _, work := range waiting {
		if was, known := p.pauses[work]; !known || !now.Before(was.until) {
			due = append(due, work)
		}
	}
	return due
}

// tried records that a signal was sent, whatever its result.
func (p *pacer) tried(work backlog.Unclaimed, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	next := p.first
	if was, known := p.pauses[work]; known {
		next = min(2*was.next, longestPause)
	}
	p.pauses[work] = pause{until: now.Add(next), next: next}
}
