package postgres

import (
	"context"
	"time"

	"github.com/overwinter-dev/overwinter/internal/backlog"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// countsKept is the number of rows of session counts up to which summing them up is not worth it.
const countsKept = 500

// SessionCounts returns the number of sessions by status and agent. It reads no row of a session.
func (db *DB) SessionCounts(ctx context.Context) ([]backlog.Count, error) {
	rows, err := db.q.SessionCounts(ctx, db.pool)
	if err != nil {
		return nil, fault("count sessions", err)
	}
	counts := make([]backlog.Count, len(rows))
	for i, row := range rows {
		counts[i] = backlog.Count{Status: session.State(row.Status), Agent: row.Agent, Sessions: row.N}
	}
	return counts, nil
}

// SessionCountsFold sums up rows of counts, so that SessionCounts reads few.
func (db *DB) SessionCountsFold(ctx context.Context) error {
	_, err := db.q.SessionCountsFold(ctx, db.pool, countsKept)
	return fault("add up the counts of sessions", err)
}

// Unfinished returns the numbers of unfinished questions and prompts. Its cost depends on these
// alone.
func (db *DB) Unfinished(ctx context.Context) (backlog.Unfinished, error) {
	questions, err := db.q.QuestionsOpen(ctx, db.pool)
	if err != nil {
		return backlog.Unfinished{}, fault("count open questions", err)
	}
	prompts, err := db.q.PromptsUnfinished(ctx, db.pool)
	return backlog.Unfinished{
		Questions: questions, Queued: prompts.Queued, Processing: prompts.Processing,
		Oldest: time.Duration(prompts.OldestSeconds * float64(time.Second)),
	}, fault("count unfinished prompts", err)
}

// Connections is the state of the pool.
type Connections struct {
	Used, Idle, Max int
	// Waited is the total time that calls have waited for a connection.
	Waited time.Duration
}

// Connections returns the current state of the pool.
func (db *DB) Connections() Connections {
	s := db.pool.Stat()
	return Connections{Used: int(s.AcquiredConns()), Idle: int(s.IdleConns()), Max: int(s.MaxConns()), Waited: s.EmptyAcquireWaitTime()}
}
