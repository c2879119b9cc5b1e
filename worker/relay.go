package worker

import (
	"context"
	"log/slog"
	"time"

	"github.com/overwinter-dev/overwinter/internal/session"
)

// Relay rings again for what nobody has claimed: the row is the promise, the
// signal only rings the bell, and a bell may go unheard when Temporal was away
// or the api died between the two. Every worker has one; that two ring for the
// same prompt changes nothing.
type Relay struct {
	Rows Unclaimed
	Bell Bell
	// Every is how often it looks. Default 2s.
	Every time.Duration
	// Age is how long a row may wait before it is rung for again. Default 3s.
	Age time.Duration
	// Batch is how many sessions one look rings for at most. Default 200.
	Batch int
}

// Unclaimed lists what nobody has claimed.
type Unclaimed interface {
	Unclaimed(ctx context.Context, age time.Duration, limit int) ([]session.Ring, error)
}

// Bell reaches the workflow of a session, started if need be.
type Bell interface {
	Ring(ctx context.Context, sessionID, promptID string, ordinal int64) error
}

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
	ticker := time.NewTicker(r.Every)
	defer ticker.Stop()
	patience := patience{}
	for {
		if err := r.look(ctx, logger, patience); err != nil && ctx.Err() == nil {
			logger.WarnContext(ctx, "the relay could not look; it will look again", slog.Any("error", err))
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// look rings once for everything unclaimed. It stops at the first ring that
// fails: where one does, the rest would only wait for the same deadline.
func (r Relay) look(ctx context.Context, logger *slog.Logger, patience patience) error {
	rings, err := r.Rows.Unclaimed(ctx, r.Age, r.Batch)
	if err != nil {
		return err
	}
	for _, ring := range patience.due(rings, time.Now(), r.Age) {
		if err := r.Bell.Ring(ctx, ring.SessionID, ring.PromptID, ring.Ordinal); err != nil {
			return err
		}
		logger.InfoContext(ctx, "rang again", slog.String("session_id", ring.SessionID), slog.String("prompt_id", ring.PromptID))
	}
	return nil
}

// maxPatience is the longest pause between two rings for the same row.
const maxPatience = time.Minute

// patience remembers what was rung for: the pause doubles with every ring, so that
// a system that is slow to answer is not rung down.
type patience map[session.Ring]pause

type pause struct {
	until time.Time
	next  time.Duration
}

// due returns the rings whose pause is over, and forgets what nobody waits for any more.
func (p patience) due(rings []session.Ring, now time.Time, first time.Duration) []session.Ring {
	waiting := make(map[session.Ring]bool, len(rings))
	var due []session.Ring
	for _, ring := range rings {
		waiting[ring] = true
		was, known := p[ring]
		if known && now.Before(was.until) {
			continue
		}
		next := first
		if known {
			next = min(2*was.next, maxPatience)
		}
		p[ring] = pause{until: now.Add(next), next: next}
		due = append(due, ring)
	}
	for ring := range p {
		if !waiting[ring] {
			delete(p, ring)
		}
	}
	return due
}
