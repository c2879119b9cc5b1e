package opencode

import (
	"slices"
	"time"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/agent/ledger"
	"github.com/overwinter-dev/overwinter/internal/agent/opencode/opencodeformat"
	"github.com/overwinter-dev/overwinter/internal/agent/translate"
	"github.com/overwinter-dev/overwinter/internal/conversation"
)

var _ agent.Continuer = (*translator)(nil)

// capture is the state of a captured stream across its turns: its sessions, and which blocks are
// shown, because a much earlier message may be reverted. Streams of the bridge do not need it.
type capture struct {
	shown   []shownBlock
	reverts map[string]opencodeformat.Revert // by session, as long as they may be undone
	created map[string]bool                  // sessions that were begun in the stream
	// held are prompts that came while an answer was being written; they follow it.
	held []heldPrompt
}

// heldPrompt is a prompt that is not shown yet.
type heldPrompt struct {
	from  shownBlock
	block conversation.Block
}

// holds reports whether a prompt has to wait, and then keeps it.
func (t *translator) holds(m *openMessage, p *opencodeformat.Part, b conversation.Block) bool {
	if t.capture == nil || !slices.ContainsFunc(t.state.Messages, func(x *openMessage) bool {
		return x.Conversation == m.Conversation && !x.User && !x.Over && x.ID < m.ID
	}) {
		return false
	}
	t.capture.held = append(t.capture.held, heldPrompt{m.shows(p, b.ID), b})
	return true
}

// release shows the prompts of a conversation that have waited.
func (t *translator) release(where string, at time.Time) {
	if t.capture == nil || len(t.capture.held) == 0 {
		return
	}
	t.capture.held = slices.DeleteFunc(t.capture.held, func(h heldPrompt) bool {
		if h.from.conversation != where {
			return false
		}
		t.capture.noted(h.from)
		t.Emit(ledger.Whole(where, h.block, at)...)
		return true
	})
}

// waiting are the conversations that have prompts that wait.
func (c *capture) waiting() []string {
	var out []string
	if c != nil {
		for _, h := range c.held {
			if !slices.Contains(out, h.from.conversation) {
				out = append(out, h.from.conversation)
			}
		}
	}
	return out
}

// created reads that there is a new session. The first one of a captured stream is the main one.
func (t *translator) created(e opencodeformat.SessionEvent, at time.Time) {
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
func (c *capture) copies(m *opencodeformat.Message) bool {
	return c != nil && c.created[m.SessionID] && (m.FromUser() || m.Role == "assistant")
}

// shownBlock is where a block comes from.
type shownBlock struct {
	conversation, session, message, part string
	id                                   string
}

// Continue continues after the end of a turn of a captured stream. Open blocks stay open: a server
// has other sessions than the main one, which continue.
func (t *translator) Continue() agent.Translator {
	next := &translator{Turn: translate.Turn{Run: t.Run}, capture: t.capture}
	if t.capture != nil {
		next.state = state{
			work: t.state.work, Root: t.state.Root, Children: t.state.Children, Title: t.state.Title,
			Retry: t.state.Retry, Retries: t.state.Retries,
		}
	}
	return next
}

// shows is where a block of the message comes from.
func (m *openMessage) shows(p *opencodeformat.Part, id string) shownBlock {
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
	t.capture.held = slices.DeleteFunc(t.capture.held, func(h heldPrompt) bool { return chosen(h.from) })
	var events []conversation.Event
	t.capture.shown = slices.DeleteFunc(t.capture.shown, func(b shownBlock) bool {
		if !chosen(b) {
			return false
		}
		if o := t.state.Find(b.id); o != nil {
			t.state.Forget(o)
		}
		events = append(events, conversation.Event{
			Type: conversation.EventBlockRemoved, ConversationID: b.conversation, At: at,
			Data: conversation.BlockRemoved{BlockID: b.id},
		})
		return true
	})
	return events
}

// reverted records the point to which a session is reverted. The revert may be undone until the
// agent continues, so it takes effect when the stream ends.
func (t *translator) reverted(info *opencodeformat.SessionInfo) {
	switch {
	case t.capture == nil:
	case info.Revert == nil || info.Revert.MessageID == "":
		delete(t.capture.reverts, info.ID)
	default:
		if t.capture.reverts == nil {
			t.capture.reverts = map[string]opencodeformat.Revert{}
		}
		t.capture.reverts[info.ID] = *info.Revert
	}
}

// settleReverts removes what is reverted when the stream ends.
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
	t.Emit(t.takeBack(func(b shownBlock) bool { return b.message == e.MessageID }, at)...)
}
