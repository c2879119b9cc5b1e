package postgres

import (
	"context"
	"time"

	"github.com/overwinter-dev/overwinter/internal/backlog"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// countsKept is how many rows of session counts are not worth adding up.
const countsKept = 500

// SessionCounts are the sessions by status and agent. It reads no session.
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

// SessionCountsFold keeps what SessionCounts reads small.
func (db *DB) SessionCountsFold(ctx context.Context) error {
	_, err := db.q.SessionCountsFold(ctx, db.pool, countsKept)
	return fault("add up the counts of sessions", err)
}

// Unfinished are the questions and prompts that are not over. What it reads grows with them alone.
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

// Connections is how the pool is used.
type Connections struct {
	Used, Idle, Max int
	// Waited is the time that all calls together have waited for a connection.
	Waited time.Duration
}

// Connections returns how the pool is used now.
func (db *DB) Connections() Connections {
	s := db.pool.Stat()
	return Connections{Used: int(s.AcquiredConns()), Idle: int(s.IdleConns()), Max: int(s.MaxConns()), Waited: s.EmptyAcquireWaitTime()}
}
