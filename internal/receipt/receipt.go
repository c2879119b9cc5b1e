// Package receipt has the result of a restore: how much of a session was restored, and what is
// missing.
package receipt

import (
	"fmt"
	"strings"
)

const (
	// MaxItems bounds each list of a receipt, because receipts are events and results of
	// activities, whose size Temporal limits.
	MaxItems = 100
	// MaxItem bounds each item of such a list, in bytes.
	MaxItem = 2048
)

// Kind is the extent of a restore.
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

// Receipt is the result of a restore.
type Receipt struct {
	Kind    Kind     `json:"kind"`
	Missing []string `json:"missing"` // missing or different parts; never nil in JSON
	// Unchecked describes the parts that were not compared, for people.
	Unchecked []string `json:"unchecked,omitempty"`
	// Moved describes the session's origin, for people, if this is its first sandbox since it was
	// imported.
	Moved string `json:"moved,omitempty"`
	// HandedFrom is the agent whose memory is missing, because the session was forked with another
	// agent, which gets the conversation as a note.
	HandedFrom string `json:"handedFrom,omitempty"`
}

// Bounded returns the receipt with the first items of each list, and the number of further ones.
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

// boundedItem returns the beginning of an item that may be too long, without invalid UTF-8.
func boundedItem(s string) string {
	if len(s) > MaxItem {
		s = s[:MaxItem-len("…")] + "…"
	}
	return strings.ToValidUTF8(s, "")
}
