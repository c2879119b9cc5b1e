package activities_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/activities"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// TestTurnWithStuckCommitIsHandedOver holds the lock of the session's row while a turn commits:
// its attempt ends by itself, and the next one finishes the turn once the lock is free.
func TestTurnWithStuckCommitIsHandedOver(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.config.TurnStall = 500 * time.Millisecond
	b.build()
	in := b.claim(t, b.create(t), "slow 20ms: "+"one two three four five six seven eight nine ten eleven twelve")
	turn := b.begin(t, in)
	b.await(t, in.RunID, "text_delta")

	conn, err := pgx.Connect(b.ctx, b.url)
	require.NoError(t, err)
	defer conn.Close(context.Background())
	_, err = conn.Exec(b.ctx, "begin")
	require.NoError(t, err)
	_, err = conn.Exec(b.ctx, "SELECT id FROM sessions WHERE id = $1 FOR UPDATE", b.id)
	require.NoError(t, err)
	_, err = turn.wait(t) // while the lock is held
	requireType(t, activities.HandOver, err)
	requirePassing(t, err)
	_, err = conn.Exec(b.ctx, "rollback")
	require.NoError(t, err)

	b.config.TurnStall = time.Minute
	b.build()
	result, err := b.turn(in)
	require.NoError(t, err)
	require.Equal(t, session.OutcomeCompleted, result.Outcome)
	require.Equal(t, "one two three four five six seven eight nine ten eleven twelve", b.output(t, in.RunID))
	require.Len(t, b.of(t, in.RunID, "turn_end"), 1)
}

// TestTurnWithStuckDeliveryIsHandedOver uses a runner that does not read the prompt. The attempt
// ends by itself, and the next one delivers the prompt once.
func TestTurnWithStuckDeliveryIsHandedOver(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.config.TurnStall = 500 * time.Millisecond
	b.build()
	in := b.claim(t, b.create(t), "unacknowledged input")
	b.driver.set(func(f *faulty) { f.deaf = `"launch":{` }) // of the message with the prompt
	_, err := b.turn(in)
	requireType(t, activities.HandOver, err)
	requirePassing(t, err)
	require.Empty(t, b.run(t, in.RunID).Outcome)

	b.driver.repair()
	b.config.TurnStall = time.Minute
	b.build()
	result, err := b.turn(in)
	require.NoError(t, err)
	require.Equal(t, session.OutcomeCompleted, result.Outcome)
	require.Len(t, b.of(t, in.RunID, "turn_end"), 1)
}

// TestWaitingForAgentCountsAsProgress runs an agent that is silent for longer than a turn may stall.
func TestWaitingForAgentCountsAsProgress(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.config.TurnStall = 4 * time.Second // a busy machine does not take as long for anything else
	b.build()
	in := b.claim(t, b.create(t), "$ sleep 6; echo done")
	result, err := b.turn(in)
	require.NoError(t, err)
	require.Equal(t, session.OutcomeCompleted, result.Outcome)
	require.EqualValues(t, 1, b.run(t, in.RunID).Attempt)
}

// TestShortTurnSendsNoHeartbeat checks that a turn shorter than the interval sends no heartbeat.
// Each heartbeat is a write of the workflow's state in Temporal, and the start of an attempt counts
// as one.
func TestShortTurnSendsNoHeartbeat(t *testing.T) {
	t.Parallel()
	b := setup(t)
	in := b.claim(t, b.create(t), "hello")
	var beats atomic.Int64
	began := time.Now()
	_, err := do(b, attempt{beat: func() { beats.Add(1) }}, b.turns.RunTurn, in)
	require.NoError(t, err)
	// One per second is more often than any interval; a turn on a busy machine may take several.
	require.LessOrEqual(t, beats.Load(), int64(time.Since(began)/time.Second))
}
