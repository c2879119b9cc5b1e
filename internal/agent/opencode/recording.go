package opencode

import (
	"bytes"
	"fmt"
	"slices"
	"time"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/agent/ledger"
	"github.com/overwinter-dev/overwinter/internal/agent/opencode/opencodeformat"
	"github.com/overwinter-dev/overwinter/internal/agent/opencode/runlines"
	"github.com/overwinter-dev/overwinter/internal/agent/stdio"
	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/session"
)

var _ agent.Continuer = (*recording)(nil)

// recording translates a captured stream, which names no run: the server's events, or the output of
// opencode run. A turn ends when the agent is idle. Later lines may concern earlier turns.
type recording struct {
	*translator
	progress progress
	past     *past
}

// progress is the progress of the turn.
type progress struct {
	// Begun is set once the turn has activity. Remainders of another turn in the stream do not
	// count.
	Begun bool `json:"begun,omitempty"`
	// Idle is set when the agent is idle. It may still be storing its work.
	Idle bool `json:"idle,omitempty"`
}

// past is the content of a stream across its turns: its sessions, and which blocks are shown,
// because a much earlier message may be reverted.
type past struct {
	shown   []shownBlock
	reverts map[string]opencodeformat.Revert // by session, while they may be undone
	created map[string]bool                  // sessions created in the stream
	// held are parts of prompts that arrived during an answer. They are shown after it.
	held []heldPart
}

// heldPart is a part of a prompt that is not shown yet.
type heldPart struct {
	message *openMessage
	part    opencodeformat.Part
}

// shownBlock identifies the origin of a block.
type shownBlock struct {
	conversation, session, message, part string
	id                                   string
}

// recordingState is the state of a translator with the fields that a recording adds.
type recordingState struct {
	*state
	progress
}

func newRecording(from []byte) (*recording, error) {
	r := &recording{translator: &translator{}, past: &past{
		reverts: map[string]opencodeformat.Revert{}, created: map[string]bool{},
	}}
	s := recordingState{state: &r.state}
	if err := r.Restore("opencode", from, stateVersion, &s); err != nil {
		return nil, err
	}
	r.progress = s.progress
	return r, nil
}

// State returns the state of this turn for a later translator, without the past of the stream.
func (r *recording) State() ([]byte, error) {
	return agent.EncodeState(stateVersion, &recordingState{&r.state, r.progress})
}

// Translate translates one frame.
func (r *recording) Translate(f agent.Frame) (agent.Translation, error) {
	return r.Read(f, r.state.Ended, r.line, r.exit), nil
}

// Cut aborts the open blocks, and removes the reverted blocks.
func (r *recording) Cut(at time.Time) []conversation.Event {
	at = at.UTC()
	r.Out = agent.Translation{}
	for len(r.past.held) > 0 {
		r.release(r.past.held[0].message.Conversation, at)
	}
	events := append(r.Out.Events, r.state.Cut(at)...)
	r.Out = agent.Translation{}
	return append(events, r.settleReverts(at)...)
}

// Continue continues after the end of a turn. Open blocks stay open: sessions other than the main
// one continue.
func (r *recording) Continue() agent.Translator {
	return &recording{past: r.past, translator: &translator{state: state{
		work: r.state.work, Root: r.state.Root, Children: r.state.Children, Title: r.state.Title,
		Retry: r.state.Retry, Retries: r.state.Retries,
	}}}
}

// The fields of a stream of server-sent events that are not data.
var sseFields = [][]byte{[]byte("event:"), []byte("id:"), []byte("retry:"), []byte(":")}

// sent returns the content of a line of server-sent events, or of a bare line.
func sent(line []byte) []byte {
	line = bytes.TrimSpace(line)
	if data, ok := bytes.CutPrefix(line, []byte("data:")); ok {
		line = bytes.TrimSpace(data)
	}
	for _, field := range sseFields {
		if bytes.HasPrefix(line, field) {
			return nil
		}
	}
	return line
}

func (r *recording) line(f agent.Frame) {
	data := sent(f.Data)
	if len(data) == 0 {
		return
	}
	if note, ok := stdio.ParseNote(data); ok {
		r.note(note, f.At)
		return
	}
	if e, ok := opened(data); ok && r.event(e, f.At) {
		return
	}
	if l, ok := runlines.Read(data, f.At); ok {
		r.printed(l)
		return
	}
	r.unparsed(f, data)
}

// event reads an event and reports whether it is known.
func (r *recording) event(e envelope, at time.Time) bool {
	switch e.Type {
	case "message.part.updated":
		return decoded(e, at, r.updated)
	case "message.part.removed":
		return decoded(e, at, r.partRemoved)
	case "message.removed":
		return decoded(e, at, r.messageRemoved)
	case "message.updated":
		return decoded(e, at, r.message)
	case "session.created":
		return decoded(e, at, r.created)
	case "session.updated":
		return decoded(e, at, r.sessionInfo)
	case "session.idle":
		return decoded(e, at, r.idle)
	case "session.error":
		return decoded(e, at, r.sessionError)
	}
	return r.translator.event(e, at)
}

// printed reads a line of opencode run, which contains no prompts, and only the calls of subagents.
func (r *recording) printed(l runlines.Line) {
	where := r.conversationOf(l.SessionID)
	if l.Error != nil {
		r.Emit(ledger.Whole(where, conversation.Block{
			ID: fmt.Sprintf("error/%s/%d", l.SessionID, l.At.UnixMilli()), Type: conversation.System, Status: conversation.Complete,
			CreatedAt: l.At, Subtype: subtypeError, Message: l.Error.Words(),
		}, l.At)...)
		r.end(opencodeformat.EndNote{Outcome: session.OutcomeFailed, Reason: l.Error.Words()}, l.At)
		return
	}
	if r.state.message(l.Part.MessageID) == nil {
		r.state.begin(&openMessage{
			ID: l.Part.MessageID, Session: l.SessionID, Conversation: where, Created: opencodeformat.IdTime(l.Part.MessageID, l.At),
		})
	}
	r.updated(partEvent{*l.Part}, l.At)
}

// created reads the creation of a session. The first one of a stream is the main one.
func (r *recording) created(e opencodeformat.SessionEvent, at time.Time) {
	r.past.created[e.Info.ID] = true
	if r.state.Root == "" && e.Info.ParentID == "" {
		r.state.Root = e.Info.ID
	}
	r.sessionInfo(e, at)
}

// sessionInfo reads changes of a session, including the point to which it is reverted. The revert
// may be undone until the agent continues, so it takes effect when the stream ends.
func (r *recording) sessionInfo(e opencodeformat.SessionEvent, at time.Time) {
	if revert := e.Info.Revert; revert != nil && revert.MessageID != "" {
		r.past.reverts[e.Info.ID] = *revert
	} else {
		delete(r.past.reverts, e.Info.ID)
	}
	r.translator.sessionInfo(e, at)
}

// message reads a change of a message. An unknown message may be old: a session forked from another
// begins with that session's messages.
func (r *recording) message(e messageEvent, at time.Time) {
	in := &e.Info
	if in.ID == "" || in.SessionID == "" {
		return
	}
	m := r.state.message(in.ID)
	if m == nil {
		isNew := r.isNew(in)
		if !isNew && (!r.past.created[in.SessionID] || !in.FromUser() && in.Role != "assistant") {
			return
		}
		if !in.FromUser() {
			r.release(r.conversationOf(in.SessionID), at)
		}
		m = r.begins(in)
		r.progress.Begun = r.progress.Begun || isNew
	}
	r.showing(m, "", func() { r.changed(m, in, at) })
	if m.User || in.Time.Completed == 0 {
		return
	}
	r.release(m.Conversation, at)
	if r.progress.Idle && !r.state.writing() {
		r.end(r.verdict(opencodeformat.EndNote{}), at)
	}
}

// updated reads the current state of a part. A part of a prompt is held during an answer.
func (r *recording) updated(e partEvent, at time.Time) {
	m := r.state.message(e.Part.MessageID)
	if m == nil || e.Part.ID == "" {
		return
	}
	if m.User && slices.ContainsFunc(r.state.Messages, func(x *openMessage) bool {
		return x.Conversation == m.Conversation && !x.User && !x.Ended && x.ID < m.ID
	}) {
		r.progressed(at)
		r.past.held = append(r.past.held, heldPart{m, e.Part})
		return
	}
	r.showing(m, e.Part.ID, func() { r.part(m, &e.Part, at) })
}

// release shows the held prompts of a conversation.
func (r *recording) release(where string, at time.Time) {
	held := r.past.held
	r.past.held = nil
	for _, h := range held {
		if h.message.Conversation != where {
			r.past.held = append(r.past.held, h)
			continue
		}
		r.showing(h.message, h.part.ID, func() { r.part(h.message, &h.part, at) })
	}
}

// showing records the origin of the blocks that read begins to show.
func (r *recording) showing(m *openMessage, part string, read func()) {
	before := len(r.Out.Events)
	read()
	for _, e := range r.Out.Events[before:] {
		if start, ok := e.Data.(conversation.BlockStart); ok {
			r.past.shown = append(r.past.shown, shownBlock{m.Conversation, m.Session, m.ID, part, start.Block.ID})
		}
	}
}

// removeBlocks removes the blocks that chosen selects, in the order in which they were shown.
func (r *recording) removeBlocks(chosen func(shownBlock) bool, at time.Time) []conversation.Event {
	r.past.held = slices.DeleteFunc(r.past.held, func(h heldPart) bool {
		m := h.message
		return chosen(shownBlock{m.Conversation, m.Session, m.ID, h.part.ID, h.part.ID})
	})
	var events []conversation.Event
	r.past.shown = slices.DeleteFunc(r.past.shown, func(b shownBlock) bool {
		if !chosen(b) {
			return false
		}
		if o := r.state.Find(b.id); o != nil {
			r.state.Forget(o)
		}
		events = append(events, conversation.Event{
			Type: conversation.EventBlockRemoved, ConversationID: b.conversation, At: at,
			Data: conversation.BlockRemoved{BlockID: b.id},
		})
		return true
	})
	return events
}

// settleReverts removes reverted blocks when the stream ends.
func (r *recording) settleReverts(at time.Time) []conversation.Event {
	return r.removeBlocks(func(b shownBlock) bool {
		to, ok := r.past.reverts[b.session]
		return ok && (b.message > to.MessageID || b.message == to.MessageID && (b.part == "" || b.part >= to.PartID))
	}, at)
}

// partRemoved reads the removal of a part by the agent, and removes its blocks.
func (r *recording) partRemoved(e removedEvent, at time.Time) {
	r.Emit(r.removeBlocks(func(b shownBlock) bool { return b.part != "" && b.part == e.PartID }, at)...)
	r.translator.partRemoved(e, at)
}

type messageRemovedEvent struct {
	MessageID string `json:"messageID"`
}

// messageRemoved reads the removal of a message.
func (r *recording) messageRemoved(e messageRemovedEvent, at time.Time) {
	r.Emit(r.removeBlocks(func(b shownBlock) bool { return b.message == e.MessageID }, at)...)
}

// sessionError reads the failure of an answer.
func (r *recording) sessionError(e errorEvent, at time.Time) {
	if e.Error == nil {
		return
	}
	where := r.conversationOf(e.SessionID)
	if where == conversation.Main {
		r.progress.Begun = true
	}
	if m := r.state.newest(where); m != nil {
		r.showing(m, "", func() { r.translator.sessionError(e, at) })
		return
	}
	r.translator.sessionError(e, at)
}

type idleEvent struct {
	SessionID string `json:"sessionID"`
}

// idle reads the report that a session is idle. This ends the turn, at once or when the agent has
// stored how it aborted its work.
func (r *recording) idle(e idleEvent, at time.Time) {
	if r.state.Noted || !r.progress.Begun || r.state.Root == "" || e.SessionID != r.state.Root {
		return
	}
	if r.state.writing() && !r.progress.Idle {
		r.progress.Idle = true
		return
	}
	r.end(r.verdict(opencodeformat.EndNote{}), at)
}

// exit handles the exit frame.
func (r *recording) exit(f agent.Frame) {
	end, events := agent.ReadExit(f, agent.MaxStderr)
	r.end(opencodeformat.EndNote{Outcome: end.Outcome, Reason: end.Reason}, f.At)
	r.Emit(events...)
}

// end ends the turn. Without a bridge the agent continues, and itself reports the outcome of open
// blocks.
func (r *recording) end(v opencodeformat.EndNote, at time.Time) {
	if r.state.Noted {
		r.translator.end(v, at)
		return
	}
	r.report(v, at)
	r.state.turn, r.progress = turn{Ended: true}, progress{}
}
