package activities_test

import (
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/activities"
	"github.com/overwinter-dev/overwinter/internal/eventlog"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// TestBacklogIsCommittedInPieces lets an agent print while no worker is attached. The next attempt
// finds the output in the journal and commits it in pieces of bounded size, with the deltas of a
// piece joined.
func TestBacklogIsCommittedInPieces(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ready := b.create(t)
	text := strings.TrimSpace(strings.Repeat("some words that are said ", 8000)) // 40,000 frames
	in := b.claim(t, ready, "slow 0ms: "+text)
	first := b.begin(t, in)
	b.await(t, in.RunID, "block_start")
	close(first.stop)
	_, err := first.wait(t)
	requireType(t, activities.HandOver, err)

	var mu sync.Mutex
	var largest, most int
	b.steps.set(func(_ string, a *eventlog.Append) error {
		if a == nil {
			return nil
		}
		bytes := 0
		for _, e := range a.Events {
			bytes += len(e.Data)
		}
		mu.Lock()
		defer mu.Unlock()
		largest, most = max(largest, bytes), max(most, len(a.Events))
		return nil
	}, nil)
	result, err := b.turn(in)
	require.NoError(t, err)
	require.Equal(t, session.OutcomeCompleted, result.Outcome)
	require.Equal(t, text, b.output(t, in.RunID))
	require.Less(t, largest, 3<<20, "a piece, and the events of one more frame")
	require.LessOrEqual(t, most, 1100)
	require.Less(t, len(b.of(t, in.RunID, "text_delta")), 20_000, "deltas that are committed together are joined")
}

// TestTurnFailsIfStoreRefusesEvents checks that a refusal ends the turn, because the store would
// refuse the same events in every attempt.
func TestTurnFailsIfStoreRefusesEvents(t *testing.T) {
	t.Parallel()
	b := setup(t)
	in := b.claim(t, b.create(t), "hello")
	refusals := 0
	b.steps.set(func(step string, a *eventlog.Append) error {
		if step == stepAppend && a != nil {
			refusals++
			return failure.Errorf(failure.Invalid, "a value is beyond a limit of the database")
		}
		return nil
	}, nil)
	_, err := b.turn(in)
	requireType(t, activities.Refused, err)
	require.ErrorContains(t, err, "beyond a limit of the database")
	require.Equal(t, 3, refusals)
}
