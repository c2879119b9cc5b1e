// Package usage counts the usage of turns, within bounds, because an agent may report any number.
package usage

// Usage is the usage of a turn.
type Usage struct {
	InputTokens  int64   `json:"inputTokens"`
	OutputTokens int64   `json:"outputTokens"`
	CostUSD      float64 `json:"costUsd"`
	// CostUnknown is set if the agent has not reported the cost of the turn; CostUSD is 0 then.
	CostUnknown bool  `json:"costUnknown,omitempty"`
	ToolCalls   int64 `json:"toolCalls"`
}

// The bounds of a turn's usage, because an agent may report any number. The totals of a session
// stop growing at MaxTotalCount and MaxTotalCostUSD.
const (
	MaxTurnCount    = 1_000_000_000_000 // of tokens or tool calls
	MaxTurnCostUSD  = 1_000_000_000.0
	MaxTotalCount   = 1<<53 - 1 // exact in every JSON parser
	MaxTotalCostUSD = 1_000_000_000_000.0
)

// Bounded returns u with each number between 0 and its bound.
func (u Usage) Bounded() Usage {
	return Usage{
		InputTokens: boundedCount(u.InputTokens), OutputTokens: boundedCount(u.OutputTokens),
		CostUSD: boundedCost(u.CostUSD), CostUnknown: u.CostUnknown, ToolCalls: boundedCount(u.ToolCalls),
	}
}

// Cost returns the cost in dollars, nil if unknown.
func (u Usage) Cost() *float64 {
	if u.CostUnknown {
		return nil
	}
	return &u.CostUSD
}

func boundedCount(n int64) int64 { return min(max(n, 0), MaxTurnCount) }

func boundedCost(usd float64) float64 {
	if !(usd > 0) { // NaN as well
		return 0
	}
	return min(usd, MaxTurnCostUSD)
}
