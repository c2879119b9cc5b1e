package opencode

import (
	"slices"
	"time"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/conversation"
)

var _ agent.Continuer = (*translator)(nil)

// capture is what is remembered of a captured stream across its turns: what a session is, and which
// blocks are shown, because somebody may take back what was said long ago. Streams of the bridge need
// none of it.
type capture struct {
	shown   []shownBlock
	reverts map[string]revert // by session, as long as they may be undone
	created map[string]bool   // sessions that were begun in the stream
}

// created reads that there is a new session. The first one of a captured stream is the main one.
func (t *translator) created(e sessionEvent, at time.Time) {
	if t.capture != nil {
		if t.capture.created == nil {
			t.capture.created = map[string]bool{}
		}
		t.capture.created[e.Info.ID] = true
		if t.state.Root == "" && e.Info.ParentID == "" {
			t.state.Root = e.Info.ID
		}
	}
	t.sessionInfo(e, at)
}

// copies reports whether a message that is new here may be old: a session that was made out of another
// one begins with what was said in that.
func (c *capture) copies(m *message) bool {
	return c != nil && c.created[m.SessionID] && (m.fromUser() || m.Role == "assistant")
}

// shownBlock is where a block comes from.
type shownBlock struct {
	conversation, session, message, part string
	id                                   string
}

// Continue goes on behind the end of a turn of a captured stream. What is open stays so: a server has
// sessions beside the main one, which go on.
func (t *translator) Continue() agent.Translator {
	next := &translator{run: t.run, capture: t.capture}
	if t.capture != nil {
		next.state = state{
			ledger: t.state.ledger, Root: t.state.Root, Children: t.state.Children, Title: t.state.Title,
			Retry: t.state.Retry, Retries: t.state.Retries,
		}
	}
	return next
}

// shows is where a block of the message comes from.
func (m *openMessage) shows(p *part, id string) shownBlock {
	return shownBlock{conversation: m.Conversation, session: m.Session, message: m.ID, part: p.ID, id: id}
}

// noted remembers a block that is shown.
func (c *capture) noted(b shownBlock) {
	if c != nil {
		c.shown = append(c.shown, b)
	}
}

// takeBack removes the blocks that are chosen, in the order in which they were shown.
func (t *translator) takeBack(chosen func(shownBlock) bool, at time.Time) []conversation.Event {
	if t.capture == nil {
		return nil
	}
	var events []conversation.Event
	t.capture.shown = slices.DeleteFunc(t.capture.shown, func(b shownBlock) bool {
		if !chosen(b) {
			return false
		}
		if o := t.state.find(b.id); o != nil {
			t.state.forget(o)
		}
		events = append(events, conversation.Event{
			Type: conversation.EventBlockRemoved, ConversationID: b.conversation, At: at,
			Data: conversation.BlockRemoved{BlockID: b.id},
		})
		return true
	})
	return events
}

// reverted notes from where on a session is taken back, which may be undone until the agent has gone
// on, and so counts when the stream ends.
func (t *translator) reverted(info *sessionInfo) {
	switch {
	case t.capture == nil:
	case info.Revert == nil || info.Revert.MessageID == "":
		delete(t.capture.reverts, info.ID)
	default:
		if t.capture.reverts == nil {
			t.capture.reverts = map[string]revert{}
		}
		t.capture.reverts[info.ID] = *info.Revert
	}
}

// settleReverts removes what is taken back when the stream ends.
func (t *translator) settleReverts(at time.Time) []conversation.Event {
	if t.capture == nil || len(t.capture.reverts) == 0 {
		return nil
	}
	return t.takeBack(func(b shownBlock) bool {
		r, ok := t.capture.reverts[b.session]
		return ok && (b.message > r.MessageID || b.message == r.MessageID && (b.part == "" || b.part >= r.PartID))
	}, at)
}

type messageRemovedEvent struct {
	MessageID string `json:"messageID"`
}

// messageRemoved reads that a message is gone.
func (t *translator) messageRemoved(e messageRemovedEvent, at time.Time) {
	t.emit(t.takeBack(func(b shownBlock) bool { return b.message == e.MessageID }, at)...)
}
