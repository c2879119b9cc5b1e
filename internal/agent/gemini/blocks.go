package gemini

import (
	"slices"

	"github.com/overwinter-dev/overwinter/internal/agent/ledger"
)

// openBlock keeps all text, because a block that completes is shown whole.
type openBlock struct {
	ledger.Entry
	// Space ends what has come so far and is shown when more follows: the agent keeps its answers
	// without it.
	Space string `json:"space,omitempty"`
	Cut   bool   `json:"cut,omitempty"` // there was more text than a state may have
}

// kept is what a state has of open blocks: the newest ones, and of those as much as there is room for.
func kept(open []*openBlock) []*openBlock {
	open = open[max(0, len(open)-ledger.Max):]
	out := make([]*openBlock, len(open))
	room := ledger.MaxKept
	for i, o := range slices.Backward(open) {
		short := *o
		if len(short.Text) > room {
			short.Text, short.Cut = short.Text[:room], true
		}
		room -= len(short.Text)
		if len(short.Block.Input) > room {
			short.Block.Input = nil
		}
		room -= len(short.Block.Input)
		out[i] = &short
	}
	return out
}
