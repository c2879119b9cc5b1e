package session

import (
	"fmt"
	"strings"
)

const (
	// MaxReceiptItems bounds each list of a receipt. Receipts are events, and results of activities, which the engine bounds.
	MaxReceiptItems = 100
	// MaxReceiptItem bounds each item of such a list, in bytes.
	MaxReceiptItem = 2048
)

// ReceiptKind says how much of a session came back with a restore.
type ReceiptKind string

// The kinds of receipt.
const (
	// ReceiptFull: the newest state, agent files and workspace alike, compared with the bundle's manifest.
	ReceiptFull ReceiptKind = "full"
	// ReceiptPartial: something is known to be missing or different.
	ReceiptPartial ReceiptKind = "partial"
	// ReceiptFresh: nothing was restored.
	ReceiptFresh ReceiptKind = "fresh"
	// ReceiptUnverified: nothing is known to be missing, but not everything was compared.
	ReceiptUnverified ReceiptKind = "unverified"
)

// Receipt is the honest account of a restore.
type Receipt struct {
	Kind    ReceiptKind `json:"kind"`
	Missing []string    `json:"missing"` // what did not come back, or came back different; never nil in JSON
	// Unchecked says what was not compared, in words for people.
	Unchecked []string `json:"unchecked,omitempty"`
	// Moved says where the session was, in words for people, if this is its first sandbox since it was imported.
	Moved string `json:"moved,omitempty"`
	// HandedFrom is the agent whose memory the agent of the session does not have, as it was forked with another one. It is given the
	// conversation as a note.
	HandedFrom string `json:"handedFrom,omitempty"`
}

// Bounded returns the receipt with the first items of each list, and how many more there are.
func (r Receipt) Bounded() Receipt {
	r.Missing, r.Unchecked = boundedList(r.Missing), boundedList(r.Unchecked)
	r.Moved = boundedItem(r.Moved)
	return r
}

// WithoutMemoryOf records that the memory of an agent that worked in the session before is missing.
func (r *Receipt) WithoutMemoryOf(agent string) {
	r.HandedFrom = agent
	if r.Kind == ReceiptFull || r.Kind == ReceiptUnverified {
		r.Kind = ReceiptPartial
	}
	r.Missing = append([]string{"memory of " + agent + ": the agent has the conversation as a note"}, r.Missing...)
}

// WithMemoryOf undoes WithoutMemoryOf.
func (r *Receipt) WithMemoryOf(agent string) {
	if r.HandedFrom != agent || len(r.Missing) == 0 {
		return
	}
	r.HandedFrom, r.Missing = "", r.Missing[1:]
	if r.Kind == ReceiptPartial && len(r.Missing) == 0 {
		r.Kind = ReceiptFull
	}
}

func boundedList(items []string) []string {
	if items == nil {
		return nil
	}
	shown := min(len(items), MaxReceiptItems)
	out := make([]string, 0, shown+1)
	for _, item := range items[:shown] {
		out = append(out, boundedItem(item))
	}
	if more := len(items) - shown; more > 0 {
		out = append(out, fmt.Sprintf("%d more", more))
	}
	return out
}

// boundedItem is the beginning of an item that may be too long, without what is no UTF-8.
func boundedItem(s string) string {
	if len(s) > MaxReceiptItem {
		s = s[:MaxReceiptItem-len("…")] + "…"
	}
	return strings.ToValidUTF8(s, "")
}
