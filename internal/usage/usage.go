// Package usage counts what turns consume, within bounds: an agent may print any number.
package usage

// Usage is what a turn consumed.
type Usage struct {
	InputTokens  int64   `json:"inputTokens"`
	OutputTokens int64   `json:"outputTokens"`
	CostUSD      float64 `json:"costUsd"`
	// CostUnknown: the agent has not reported what the turn has cost; CostUSD is 0.
	CostUnknown bool  `json:"costUnknown,omitempty"`
	ToolCalls   int64 `json:"toolCalls"`
}

// The bounds of what is believed of a turn's usage: an agent may print any number. The totals of a session stop growing
// at MaxTotalCount and MaxTotalCostUSD.
const (
	MaxTurnCount    = 1_000_000_000_000 // of tokens or tool calls
	MaxTurnCostUSD  = 1_000_000_000.0
	MaxTotalCount   = 1<<53 - 1 // what every JSON parser reads exactly
	MaxTotalCostUSD = 1_000_000_000_000.0
)

// Bounded returns u with each number between 0 and its bound.
func (u Usage) Bounded() Usage {
	return Usage{
		InputTokens: boundedCount(u.InputTokens), OutputTokens: boundedCount(u.OutputTokens),
		CostUSD: boundedCost(u.CostUSD), CostUnknown: u.CostUnknown, ToolCalls: boundedCount(u.ToolCalls),
	}
}

// Cost is the cost in dollars, nil if it is not known.
func (u Usage) Cost() *float64 {
	if u.CostUnknown {
		return nil
	}
	return &u.CostUSD
}

func boundedCount(n int64) int64 { return min(max(n, 0), MaxTurnCount) }

func boundedCost(usd float64) float64 {
	if !(usd > 0) { // also what is not a number
		return 0
	}
	return min(usd, MaxTurnCostUSD)
}
