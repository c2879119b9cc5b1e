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
	for {
		if err := r.look(ctx, logger); err != nil && ctx.Err() == nil {
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
func (r Relay) look(ctx context.Context, logger *slog.Logger) error {
	rings, err := r.Rows.Unclaimed(ctx, r.Age, r.Batch)
	if err != nil {
		return err
	}
	for _, ring := range rings {
		if err := r.Bell.Ring(ctx, ring.SessionID, ring.PromptID, ring.Ordinal); err != nil {
			return err
		}
		logger.InfoContext(ctx, "rang again", slog.String("session_id", ring.SessionID), slog.String("prompt_id", ring.PromptID))
	}
	return nil
}
