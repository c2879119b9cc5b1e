package event

import (
	"encoding/json"
	"fmt"

	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/eventlog"
	"github.com/overwinter-dev/overwinter/internal/resource"
)

// Turn follows one prompt through the log of its session, from its submission to its outcome, in any number of runs.
type Turn struct {
	PromptID string
	// RunID is the current or last run of the prompt; empty before the first.
	RunID string
	// Prompt is the last reported state of the prompt.
	Prompt resource.PromptJSON
}

// Relation is the relation of an event to a turn.
type Relation int

// The relations of events.
const (
	// OfOthers: the event belongs to another prompt or another run.
	OfOthers Relation = iota
	// ofTurn: it belongs to the prompt or to its run.
	ofTurn
	// OfSession: it concerns the session as a whole.
	OfSession
)

// Next reads the next event of the log and returns its relation to the turn. An error means that
// data does not match its type.
func (t *Turn) Next(e eventlog.Event) (Relation, error) {
	switch e.Type {
	case TypePrompt:
		var d PromptData
		if err := json.Unmarshal(e.Data, &d); err != nil {
			return OfOthers, fmt.Errorf("%s event %d: %w", e.Type, e.Seq, err)
		}
		if d.Prompt.ID != t.PromptID {
			return OfOthers, nil
		}
		t.Prompt = d.Prompt.Whole()
		return ofTurn, nil
	case TypeTurnStart, TypeTurnEnd:
		var d TurnStartData // the first fields of both
		if err := json.Unmarshal(e.Data, &d); err != nil {
			return OfOthers, fmt.Errorf("%s event %d: %w", e.Type, e.Seq, err)
		}
		if d.PromptID != t.PromptID {
			return OfOthers, nil
		}
		t.RunID = d.RunID
		return ofTurn, nil
	}
	if e.RunID != "" {
		if e.RunID == t.RunID {
			return ofTurn, nil
		}
		return OfOthers, nil
	}
	switch conversation.EventType(e.Type) {
	case conversation.EventBlockStart, conversation.EventTextDelta, conversation.EventBlockUpdate, conversation.EventBlockComplete,
		conversation.EventBlockRemoved, conversation.EventMetadataUpdate:
		return OfOthers, nil // a revert, or a turn of a release that recorded no run
	}
	return OfSession, nil
}

// Ended reports whether the prompt has an outcome, according to the events so far.
func (t *Turn) Ended() bool { return t.Prompt.Status != "" && t.Prompt.Status.Final() }
