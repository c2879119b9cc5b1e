package acp

import (
	"encoding/json"
	"slices"

	"github.com/overwinter-dev/overwinter/internal/agent/acp/acpformat"
	"github.com/overwinter-dev/overwinter/internal/agent/ledger"
)

// kept bounds the open blocks of a state: the newest blocks, with as much of their content as fits.
func kept(open []*acpformat.OpenBlock) []*acpformat.OpenBlock {
	open = open[max(0, len(open)-ledger.Max):]
	out := make([]*acpformat.OpenBlock, len(open))
	room := ledger.MaxKept
	for i, o := range slices.Backward(open) {
		short := *o
		if len(short.Text) > room {
			short.Text, short.Cut = short.Text[:room], true
		}
		room -= len(short.Text)
		for _, raw := range []*json.RawMessage{&short.Block.Input, &short.Shown, &short.Output} {
			if len(*raw) > room {
				*raw = nil
			}
			room -= len(*raw)
		}
		out[i] = &short
	}
	return out
}
