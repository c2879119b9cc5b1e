package turn

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/question"
	"github.com/overwinter-dev/overwinter/internal/secret"
)

// Masks knows how to mask the stored secrets.
type Masks interface {
	// Masker returns the masker for the secrets that are stored now.
	Masker(ctx context.Context) (*secret.Masker, error)
}

const (
	// remaskEvery is how often a turn looks for secrets that were stored since it began.
	remaskEvery = 5 * time.Second
	// maxHeld and maxHeldBytes bound the held-back text of the open blocks of a turn. Beyond these
	// limits, the oldest text is dropped.
	maxHeld      = 1000
	maxHeldBytes = 256 << 10
)

// masking masks the text of a turn's events. All events of agents pass through it before the
// limiter. Its fields, except for the masker, are its state, which another process can resume.
type masking struct {
	masker *secret.Masker
	held   []heldText
}

// heldText is the end of an open block's text that may be the beginning of a secret's value.
type heldText struct {
	Conversation string `json:"c,omitempty"`
	Block        string `json:"b"`
	Text         string `json:"t"`
}

// take removes and returns the held-back text of a block.
func (m *masking) take(conversationID, blockID string) string {
	for i, h := range m.held {
		if h.Conversation == conversationID && h.Block == blockID {
			m.held = slices.Delete(m.held, i, i+1)
			return h.Text
		}
	}
	return ""
}

func (m *masking) hold(conversationID, blockID, text string) {
	if text == "" {
		return
	}
	m.held = append(m.held, heldText{Conversation: conversationID, Block: blockID, Text: text})
	n := 0
	for _, h := range m.held {
		n += len(h.Text)
	}
	for len(m.held) > maxHeld || n > maxHeldBytes {
		n -= len(m.held[0].Text)
		m.held = slices.Delete(m.held, 0, 1)
	}
}

// events returns the masked form of an event, usually one event. If a block ends without repeating
// its whole text, an event with its held-back text comes first.
func (m *masking) events(e conversation.Event) []conversation.Event {
	text := m.masker.Text
	e.ConversationID = text(e.ConversationID)
	switch d := e.Data.(type) {
	case conversation.BlockStart:
		d.Block = m.block(d.Block, false)
		m.take(e.ConversationID, d.Block.ID)
		var rest string
		if d.Block.Status.Open() {
			d.Block.Content, rest = m.masker.Stream("", d.Block.Content)
		} else {
			d.Block.Content = text(d.Block.Content)
		}
		m.hold(e.ConversationID, d.Block.ID, rest)
		e.Data = d
	case conversation.TextDelta:
		d.BlockID = text(d.BlockID)
		var rest string
		d.Delta, rest = m.masker.Stream(m.take(e.ConversationID, d.BlockID), d.Delta)
		m.hold(e.ConversationID, d.BlockID, rest)
		if d.Delta == "" {
			return nil
		}
		e.Data = d
	case conversation.BlockUpdate:
		d.BlockID = text(d.BlockID)
		d.Updates.Name, d.Updates.SubagentID = text(d.Updates.Name), text(d.Updates.SubagentID)
		d.Updates.Input, d.Updates.Output = m.masker.JSON(d.Updates.Input), m.masker.JSON(d.Updates.Output)
		e.Data = d
		if d.Updates.Status == "" || d.Updates.Status.Open() {
			break
		}
		if rest := m.take(e.ConversationID, d.BlockID); rest != "" {
			last := e
			last.Type, last.Data = conversation.EventTextDelta, conversation.TextDelta{BlockID: d.BlockID, Delta: text(rest)}
			return []conversation.Event{last, e}
		}
	case conversation.BlockComplete:
		d.Block = m.block(d.Block, true)
		m.take(e.ConversationID, d.Block.ID)
		e.Data = d
	case conversation.BlockRemoved:
		d.BlockID = text(d.BlockID)
		m.take(e.ConversationID, d.BlockID)
		e.Data = d
	case conversation.Title:
		d.Title = text(d.Title)
		e.Data = d
	case conversation.Problem:
		d.Code, d.Message = text(d.Code), text(d.Message)
		e.Data = d
	case conversation.MetadataUpdate:
		d.Model = text(d.Model)
		e.Data = d
	}
	return []conversation.Event{e}
}

// block masks a block, including its content if the content is complete.
func (m *masking) block(b conversation.Block, whole bool) conversation.Block {
	text := m.masker.Text
	b.ID, b.ToolUseID, b.SubagentID = text(b.ID), text(b.ToolUseID), text(b.SubagentID)
	b.Name, b.Author, b.Subtype, b.Message = text(b.Name), text(b.Author), text(b.Subtype), text(b.Message)
	b.Input, b.Output = m.masker.JSON(b.Input), m.masker.JSON(b.Output)
	if whole {
		b.Content = text(b.Content)
	}
	return b
}

// end masks the texts in the end of a turn.
func (m *masking) end(e *agent.TurnEnd) *agent.TurnEnd {
	if e == nil || m.masker == nil {
		return e
	}
	masked := *e
	masked.Reason, masked.Model = m.masker.Text(e.Reason), m.masker.Text(e.Model)
	return &masked
}

// shown returns a question in the form that people see. The agent still gets its original input
// back.
func (m *masking) shown(q question.Asked) *question.Asked {
	if m.masker == nil {
		return nil
	}
	masked := q.Map(m.masker.Text, m.masker.JSON)
	return &masked
}

// masker returns the masker for the secrets that are stored now, or were when the mark of the context was
// read.
func (x *Executor) masker(ctx context.Context) (*secret.Masker, error) {
	masker, err := x.Masks.Masker(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the secrets to mask: %w", err)
	}
	return masker, nil
}

// remask updates the turn's masker like masker.
func (a *attempt) remask(ctx context.Context) error {
	masker, err := a.masker(ctx)
	if err != nil {
		return err
	}
	a.masking.masker, a.remasked = masker, time.Now()
	return nil
}

// remaskSometimes is remask for a running turn: if it fails, the masker stays unchanged.
func (a *attempt) remaskSometimes(ctx context.Context) {
	if time.Since(a.remasked) < remaskEvery {
		return
	}
	if err := a.remask(ctx); err != nil {
		a.remasked = time.Now()
		a.log().WarnContext(ctx, "could not read the stored secrets; masking the previous ones", slog.Any("error", err))
	}
}
