package opencode

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/overwinter-dev/overwinter/internal/agent/ledger"
	"github.com/overwinter-dev/overwinter/internal/agent/opencode/opencodeformat"
	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// runLine is a line of opencode run --format json: a part when it is whole, or an error. There is
// nothing of prompts, and nothing of subagents but their calls.
type runLine struct {
	Type      string                      `json:"type"`
	Timestamp opencodeformat.Stamp        `json:"timestamp"`
	SessionID string                      `json:"sessionID"`
	Part      *opencodeformat.Part        `json:"part"`
	Error     *opencodeformat.NativeError `json:"error"`
}

// runLine reads such a line of a captured stream. It reports whether it was one.
func (t *translator) runLine(data []byte, at time.Time) bool {
	var l runLine
	if t.capture == nil || json.Unmarshal(data, &l) != nil || l.SessionID == "" {
		return false
	}
	if l.Timestamp > 0 {
		at = stampTime(l.Timestamp)
	}
	switch {
	case l.Error != nil:
		t.Emit(ledger.Whole(t.conversationOf(l.SessionID), conversation.Block{
			ID: fmt.Sprintf("error/%s/%d", l.SessionID, at.UnixMilli()), Type: conversation.System, Status: conversation.Complete,
			CreatedAt: at, Subtype: subtypeError, Message: l.Error.Words(),
		}, at)...)
		t.end(opencodeformat.EndNote{Outcome: session.OutcomeFailed, Reason: l.Error.Words()}, at)
	case l.Part == nil || l.Part.ID == "" || l.Part.MessageID == "":
		return false
	default:
		if t.state.message(l.Part.MessageID) == nil {
			t.state.begin(&openMessage{
				ID: l.Part.MessageID, Session: l.SessionID, Conversation: t.conversationOf(l.SessionID), Created: opencodeformat.IdTime(l.Part.MessageID, at),
			})
		}
		t.updated(partEvent{*l.Part}, at)
	}
	return true
}
