package usage_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/usage"
)

func TestUsageIsBounded(t *testing.T) {
	t.Parallel()
	usual := usage.Usage{InputTokens: 5, OutputTokens: 7, CostUSD: 0.5, ToolCalls: 2}
	require.Equal(t, usual, usual.Bounded())
	most := usage.Usage{
		InputTokens: usage.MaxTurnCount, OutputTokens: usage.MaxTurnCount, CostUSD: usage.MaxTurnCostUSD, ToolCalls: usage.MaxTurnCount,
	}
	for _, cost := range []float64{math.Inf(1), math.MaxFloat64} {
		require.Equal(t, most, usage.Usage{
			InputTokens: math.MaxInt64, OutputTokens: math.MaxInt64, CostUSD: cost, ToolCalls: math.MaxInt64,
		}.Bounded())
	}
	for _, cost := range []float64{math.NaN(), math.Inf(-1), -1} {
		require.Equal(t, usage.Usage{}, usage.Usage{
			InputTokens: math.MinInt64, OutputTokens: -1, CostUSD: cost, ToolCalls: math.MinInt64,
		}.Bounded())
	}
}
