package session_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/session"
)

func TestUsageIsBelievedWithinBounds(t *testing.T) {
	t.Parallel()
	usual := session.Usage{InputTokens: 5, OutputTokens: 7, CostUSD: 0.5, ToolCalls: 2}
	require.Equal(t, usual, usual.Bounded())
	most := session.Usage{
		InputTokens: session.MaxTurnCount, OutputTokens: session.MaxTurnCount, CostUSD: session.MaxTurnCostUSD, ToolCalls: session.MaxTurnCount,
	}
	for _, cost := range []float64{math.Inf(1), math.MaxFloat64} {
		require.Equal(t, most, session.Usage{
			InputTokens: math.MaxInt64, OutputTokens: math.MaxInt64, CostUSD: cost, ToolCalls: math.MaxInt64,
		}.Bounded())
	}
	for _, cost := range []float64{math.NaN(), math.Inf(-1), -1} {
		require.Equal(t, session.Usage{}, session.Usage{
			InputTokens: math.MinInt64, OutputTokens: -1, CostUSD: cost, ToolCalls: math.MinInt64,
		}.Bounded())
	}
}
