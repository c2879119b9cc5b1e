package gemini

import (
	"slices"

	"github.com/overwinter-dev/overwinter/internal/agent/ledger"
)

// openBlock keeps all text, because a block is shown in full when it completes.
type openBlock struct {
	ledger.Entry
	// Space is the trailing white space so far, shown when more text follows: the agent stores its
	// answers without it.
	Space string `json:"space,omitempty"`
	Cut   bool   `json:"cut,omitempty"` // Text was truncated to fit into a state
}

// kept bounds the open blocks of a state: the newest blocks, with as much of their content as fits.
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
