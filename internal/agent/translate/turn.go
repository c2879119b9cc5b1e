// Package translate contains the common part of translators. A translator embeds a Turn, passes
// each frame to Read with its own methods for lines and for the exit of the process, and adds the
// translation to Out.
package translate

import (
	"bytes"
	"fmt"
	"slices"
	"time"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/agent/ledger"
	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/usage"
)

// Turn is a run that is being translated.
type Turn struct {
	Run agent.RunContext // without a run id, every turn of a captured stream is read as one run
	Out agent.Translation

	encoded   []byte // the encoded state; nil if it may have changed since
	unchanged bool   // the frame in progress has not changed the state
}

// State encodes the translator's state, unless it is unchanged since the last call. The result must
// not be modified. The state is stored with every commit, and most commits have only deltas of a
// text that the state does not keep.
func (t *Turn) State(version int, state any) ([]byte, error) {
	if t.encoded == nil {
		encoded, err := agent.EncodeState(version, state)
		if err != nil {
			return nil, err
		}
		t.encoded = encoded
	}
	return t.encoded, nil
}

// Changed records that the state may have changed other than by a line or the exit.
func (t *Turn) Changed() { t.encoded = nil }

// Unchanged records that the line in progress does not change the state. Without it, State assumes
// that each line does.
func (t *Turn) Unchanged() { t.unchanged = true }

// Restore decodes the stored state of the translator of the named agent. Without one, it leaves
// state unchanged: the run starts.
func (t *Turn) Restore(name string, stored []byte, version int, state any) error {
	if len(stored) == 0 {
		return nil
	}
	if err := agent.DecodeState(stored, version, state); err != nil {
		return fmt.Errorf("%s translator of run %s: state: %w", name, t.Run.RunID, err)
	}
	return nil
}

// Read passes a non-empty line, or the exit of the process, to its reader and returns the
// translation that the reader added to Out. The frame's time is in UTC. Frames after the end of the
// turn are ignored.
func (t *Turn) Read(f agent.Frame, ended bool, line, exit func(agent.Frame)) agent.Translation {
	t.Out, t.unchanged = agent.Translation{}, false
	f.At = f.At.UTC()
	switch {
	case ended:
	case f.Stream == agent.Stdout && len(bytes.TrimSpace(f.Data)) > 0:
		line(f)
	case f.Stream == agent.Exit:
		exit(f)
	}
	if !t.unchanged {
		t.Changed()
	}
	out := t.Out
	t.Out = agent.Translation{}
	return out
}

// Picture adds images in tool results.
func (t *Turn) Picture(images []conversation.ImageData) {
	t.Out.Images = append(t.Out.Images, images...)
}

// Emit adds events.
func (t *Turn) Emit(events ...conversation.Event) { t.Out.Events = append(t.Out.Events, events...) }

// Unparsed shows the given text for a line that is not understood.
func (t *Turn) Unparsed(f agent.Frame, line string) {
	t.Emit(ledger.Whole(conversation.Main, conversation.Block{
		ID:   fmt.Sprintf("unparsed/%s/%d", t.Run.RunID, f.No),
		Type: conversation.System, Status: conversation.Complete, CreatedAt: f.At, Subtype: "unparsed", Message: line,
	}, f.At)...)
}

// IsRun reports whether a line with a run id belongs to this turn.
func (t *Turn) IsRun(runID string) bool { return t.Run.RunID == "" || runID == t.Run.RunID }

// Ask adds a question, unless it is already waiting.
func (t *Turn) Ask(waiting *[]string, q agent.Question) {
	if slices.Contains(*waiting, q.ID) {
		return
	}
	*waiting = append(*waiting, q.ID)
	t.Out.Questions = append(t.Out.Questions, q)
}

// Resolve removes a question from those that wait, and reports whether it was one of them.
func (t *Turn) Resolve(waiting *[]string, id string) bool {
	before := len(*waiting)
	*waiting = slices.DeleteFunc(*waiting, func(w string) bool { return w == id })
	if len(*waiting) == before {
		return false
	}
	t.Out.Resolved = append(t.Out.Resolved, id)
	return true
}

// Usage returns the event with the usage of the session's main conversation.
func Usage(u usage.Usage, model string, at time.Time) conversation.Event {
	return conversation.Event{
		Type: conversation.EventMetadataUpdate, ConversationID: conversation.Main, At: at,
		Data: conversation.MetadataUpdate{
			Usage:   conversation.Usage{InputTokens: u.InputTokens, OutputTokens: u.OutputTokens},
			CostUSD: u.Cost(), Model: model,
		},
	}
}
