package postgres_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/run"
	"github.com/overwinter-dev/overwinter/internal/session"
	"github.com/overwinter-dev/overwinter/internal/usage"
)

// TestTurnEndsDespiteInvalidUsage checks that the sum of the reported usage does not exceed the
// range of a column. Otherwise no turn of the session could end, and the session could not be
// stopped.
func TestTurnEndsDespiteInvalidUsage(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.running(t)
	for _, usage := range []usage.Usage{
		{InputTokens: math.MaxInt64, OutputTokens: math.MaxInt64, CostUSD: math.MaxFloat64, ToolCalls: math.MaxInt64},
		{InputTokens: math.MaxInt64, OutputTokens: math.MaxInt64, CostUSD: math.Inf(1), ToolCalls: math.MaxInt64},
		{InputTokens: math.MinInt64, OutputTokens: -1, CostUSD: math.NaN(), ToolCalls: -1},
	} {
		runID := b.begin(t, b.submit(t, "hello"))
		_, err := b.RunEnd(b.ctx, run.Ending{RunID: runID, Token: "t1", Outcome: session.OutcomeCompleted, Usage: usage})
		require.NoError(t, err)
	}
	s, err := b.SessionGet(b.ctx, b.id)
	require.NoError(t, err)
	s.Metrics.ActiveSeconds = 0 // grows while the session runs
	require.Equal(t, session.Metrics{
		Messages: 3, ToolCalls: 2 * usage.MaxTurnCount, InputTokens: 2 * usage.MaxTurnCount, OutputTokens: 2 * usage.MaxTurnCount,
		CostUSD: new(2 * usage.MaxTurnCostUSD),
	}, s.Metrics)

	// As an earlier release stored it.
	b.sql(t, `UPDATE sessions SET tool_calls = $2, input_tokens = $2, output_tokens = $2, cost_usd = $3 WHERE id = $1`, b.id, int64(math.MaxInt64), math.MaxFloat64)
	_, err = b.RunEnd(b.ctx, run.Ending{
		RunID: b.begin(t, b.submit(t, "hello")), Token: "t1", Outcome: session.OutcomeCompleted,
		Usage: usage.Usage{InputTokens: 1, OutputTokens: 1, CostUSD: 1, ToolCalls: 1},
	})
	require.NoError(t, err)
	s, err = b.SessionGet(b.ctx, b.id)
	require.NoError(t, err)
	s.Metrics.ActiveSeconds = 0 // grows while the session runs
	require.Equal(t, session.Metrics{
		Messages: 4, ToolCalls: usage.MaxTotalCount, InputTokens: usage.MaxTotalCount, OutputTokens: usage.MaxTotalCount,
		CostUSD: new(usage.MaxTotalCostUSD),
	}, s.Metrics)
}

// TestUnknownCostIsNotZero checks that the sum of a session includes only turns that have reported
// a cost.
func TestUnknownCostIsNotZero(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.running(t)
	cost := func() *float64 {
		s, err := b.SessionGet(b.ctx, b.id)
		require.NoError(t, err)
		return s.Metrics.CostUSD
	}
	require.Equal(t, new(0.0), cost(), "nothing was used")
	for _, turn := range []struct {
		used usage.Usage
		sum  *float64
	}{
		{usage.Usage{CostUnknown: true}, nil},
		{usage.Usage{CostUnknown: true}, nil},
		{usage.Usage{CostUSD: 0.5}, new(0.5)},
		{usage.Usage{CostUnknown: true}, new(0.5)},
		{usage.Usage{CostUSD: 0.25}, new(0.75)},
	} {
		run, err := b.RunEnd(b.ctx, run.Ending{
			RunID: b.begin(t, b.submit(t, "hello")), Token: "t1", Outcome: session.OutcomeCompleted, Usage: turn.used,
		})
		require.NoError(t, err)
		require.Equal(t, turn.used, run.Usage)
		require.Equal(t, turn.sum, cost())
	}
}
