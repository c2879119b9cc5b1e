// Package receipt is the account of a restore: how much of a session came back, and what did not.
package receipt

import (
	"fmt"
	"strings"
)

const (
	// MaxItems bounds each list of a receipt. Receipts are events, and results of activities, which the engine bounds.
	MaxItems = 100
	// MaxItem bounds each item of such a list, in bytes.
	MaxItem = 2048
)

// Kind says how much of a session came back with a restore.
type Kind string

// The kinds of receipt.
const (
	// Full: the newest state, agent files and workspace alike, compared with the bundle's manifest.
	Full Kind = "full"
	// Partial: something is known to be missing or different.
	Partial Kind = "partial"
	// Fresh: nothing was restored.
	Fresh Kind = "fresh"
	// Unverified: nothing is known to be missing, but not everything was compared.
	Unverified Kind = "unverified"
)

// Receipt is the honest account of a restore.
type Receipt struct {
	Kind    Kind     `json:"kind"`
	Missing []string `json:"missing"` // what did not come back, or came back different; never nil in JSON
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
	if r.Kind == Full || r.Kind == Unverified {
		r.Kind = Partial
	}
	r.Missing = append([]string{"memory of " + agent + ": the agent has the conversation as a note"}, r.Missing...)
}

// WithMemoryOf undoes WithoutMemoryOf.
func (r *Receipt) WithMemoryOf(agent string) {
	if r.HandedFrom != agent || len(r.Missing) == 0 {
		return
	}
	r.HandedFrom, r.Missing = "", r.Missing[1:]
	if r.Kind == Partial && len(r.Missing) == 0 {
		r.Kind = Full
	}
}

func boundedList(items []string) []string {
	if items == nil {
		return nil
	}
	shown := min(len(items), MaxItems)
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
	if len(s) > MaxItem {
		s = s[:MaxItem-len("…")] + "…"
	}
	return strings.ToValidUTF8(s, "")
}
