package opencode

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"github.com/overwinter-dev/overwinter/internal/agent/opencode/httplog"
	"github.com/overwinter-dev/overwinter/internal/agent/opencode/opencodeformat"
	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/transcript"
)

// Parse reads exports of sessions: {"info":…,"messages":…}, as the agent's export command writes
// them and the bridge saves them. It also reads a bare list of messages, as the server returns it,
// and recordings of its responses. Of a truncated file it uses the complete messages. The main
// conversation is the first session without a parent, and every such session that the bridge has
// saved, one after the other.
func (Adapter) Parse(files []transcript.File) (conversation.Conversation, error) {
	p := parser{failed: map[string]string{}, byID: map[string]*savedSession{}}
	for _, f := range files {
		p.read(f.Data)
	}
	return p.conversation(), nil
}

// savedSession is a session as read so far.
type savedSession struct {
	info     opencodeformat.SessionInfo
	saved    bool // saved by the bridge, which has one session at a time
	messages []opencodeformat.Exported
	places   map[string]int // index of messages by id
}

type parser struct {
	failed   map[string]string // reasons of aborted answers, by message id
	sessions []*savedSession
	byID     map[string]*savedSession
}

// session returns the record of a session and creates it if necessary.
func (p *parser) session(id string) *savedSession {
	if t, ok := p.byID[id]; ok {
		return t
	}
	t := &savedSession{info: opencodeformat.SessionInfo{ID: id}, places: map[string]int{}}
	p.byID[id] = t
	p.sessions = append(p.sessions, t)
	return t
}

// read reads one file.
func (p *parser) read(data []byte) {
	data = bytes.TrimSpace(data)
	switch {
	case len(data) == 0:
	case data[0] == '[':
		p.messages(data, opencodeformat.SessionInfo{})
	case httplog.Is(data):
		for _, r := range httplog.Read(data) {
			p.messages(r.Messages, opencodeformat.SessionInfo{})
			for _, s := range r.Sessions {
				p.known(s, false)
			}
		}
	default:
		p.export(data)
	}
}

// export reads the complete part of an export. A part that occurs twice, as when two files contain
// one session, counts once.
func (p *parser) export(data []byte) {
	var whole struct {
		Saved    json.RawMessage `json:"overwinter"`
		Info     json.RawMessage `json:"info"`
		Messages json.RawMessage `json:"messages"`
		opencodeformat.FailureList
	}
	if json.Unmarshal(data, &whole) == nil {
		for _, f := range whole.Failures {
			p.failed[f.MessageID] = f.Message
		}
		p.messages(whole.Messages, p.known(whole.Info, len(whole.Saved) > 0))
		return
	}
	// The file is truncated, or not JSON.
	d := json.NewDecoder(bytes.NewReader(data))
	if !opens(d, '{') {
		return
	}
	var info opencodeformat.SessionInfo
	saved := false
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return
		}
		if key == "messages" {
			p.take(someMessages(bytes.TrimLeft(data[d.InputOffset():], " \t\r\n:")), info)
			return
		}
		var raw json.RawMessage
		if d.Decode(&raw) != nil {
			return
		}
		switch key {
		case "overwinter":
			saved = true
		case "info":
			info = p.known(raw, saved)
		}
	}
}

// known records the metadata of a session.
func (p *parser) known(raw json.RawMessage, saved bool) opencodeformat.SessionInfo {
	var info opencodeformat.SessionInfo
	if json.Unmarshal(raw, &info) != nil || info.ID == "" {
		return opencodeformat.SessionInfo{}
	}
	t := p.session(info.ID)
	t.info, t.saved = info, t.saved || saved
	return info
}

// messages reads the complete messages of a list.
func (p *parser) messages(data []byte, info opencodeformat.SessionInfo) {
	var all []opencodeformat.Exported
	if json.Unmarshal(data, &all) != nil {
		all = someMessages(data)
	}
	p.take(all, info)
}

// take adds messages to their sessions.
func (p *parser) take(all []opencodeformat.Exported, info opencodeformat.SessionInfo) {
	for _, m := range all {
		if m.Info.SessionID == "" {
			m.Info.SessionID = info.ID
		}
		if m.Info.ID == "" || m.Info.SessionID == "" {
			continue
		}
		p.session(m.Info.SessionID).add(m)
	}
}

// someMessages reads the messages of a list, up to the point where the list is truncated. It skips
// messages of another form.
func someMessages(data []byte) []opencodeformat.Exported {
	d := json.NewDecoder(bytes.NewReader(data))
	if !opens(d, '[') {
		return nil
	}
	var all []opencodeformat.Exported
	for d.More() {
		var m opencodeformat.Exported
		var form *json.UnmarshalTypeError
		switch err := d.Decode(&m); {
		case err == nil:
			all = append(all, m)
		case !errors.As(err, &form):
			return all
		}
	}
	return all
}

// opens reads the opening bracket.
func opens(d *json.Decoder, bracket json.Delim) bool {
	token, err := d.Token()
	return err == nil && token == bracket
}

// add adds a message, or replaces an older one with the same id. The order is that of the agent.
func (t *savedSession) add(m opencodeformat.Exported) {
	if i, ok := t.places[m.Info.ID]; ok {
		t.messages[i] = m
		return
	}
	t.places[m.Info.ID] = len(t.messages)
	t.messages = append(t.messages, m)
}

// conversation combines the sessions.
func (p *parser) conversation() conversation.Conversation {
	var mains, others []*savedSession
	for _, t := range p.sessions {
		if t.info.ParentID == "" {
			mains = append(mains, t)
		} else {
			others = append(others, t)
		}
	}
	slices.SortStableFunc(mains, func(a, b *savedSession) int { return cmp.Compare(a.begun(), b.begun()) })
	if len(mains) > 0 && !slices.ContainsFunc(mains, func(t *savedSession) bool { return t.saved }) {
		mains[0].saved = true // no other mark identifies it
	}
	mains = slices.DeleteFunc(mains, func(t *savedSession) bool {
		if !t.saved {
			others = append(others, t)
		}
		return !t.saved
	})
	// Order subagents by their first part, as in the stream.
	slices.SortStableFunc(others, func(a, b *savedSession) int {
		return cmp.Or(strings.Compare(a.first(), b.first()), strings.Compare(a.info.ID, b.info.ID))
	})
	c := conversation.Conversation{Threads: []conversation.Thread{{ID: conversation.Main, Blocks: []conversation.Block{}}}}
	for _, t := range mains {
		c.Threads[0].Blocks = append(c.Threads[0].Blocks, t.blocks(p.failed)...)
	}
	for _, t := range others {
		if blocks := t.blocks(p.failed); len(blocks) > 0 {
			c.Threads = append(c.Threads, conversation.Thread{ID: t.info.ID, Blocks: blocks})
		}
	}
	return c
}

// begun returns when a session began, if that is known.
func (t *savedSession) begun() opencodeformat.Stamp {
	if t.info.Time.Created == 0 && len(t.messages) > 0 {
		return t.messages[0].Info.Time.Created
	}
	return t.info.Time.Created
}

// first returns the id of the session's first part that is shown.
func (t *savedSession) first() string {
	for i := range t.messages {
		m := &t.messages[i]
		for j := range m.Parts {
			if isShown(&m.Parts[j], &m.Info) {
				return m.Parts[j].ID
			}
		}
	}
	return ""
}

// placeSteers moves each prompt that was added to a running turn before the answer that accepts it.
// A prompt that no answer accepts has returned to the queue, and is removed.
func (t *savedSession) placeSteers() {
	var steers []opencodeformat.Exported
	messages := make([]opencodeformat.Exported, 0, len(t.messages))
	for _, m := range t.messages {
		if opencodeformat.IsSteered(m.Info.ID) {
			steers = append(steers, m)
		}
	}
	if len(steers) == 0 {
		return
	}
	for _, m := range t.messages {
		if opencodeformat.IsSteered(m.Info.ID) {
			continue
		}
		for len(steers) > 0 && m.Info.Takes(steers[0].Info.ID) {
			messages, steers = append(messages, steers[0]), steers[1:]
		}
		messages = append(messages, m)
	}
	t.messages = messages
}

func (t *savedSession) blocks(failed map[string]string) []conversation.Block {
	t.placeSteers()
	var out []conversation.Block
	for i := range t.messages {
		m := &t.messages[i]
		if r := t.info.Revert; r != nil && r.MessageID == m.Info.ID {
			from := slices.IndexFunc(m.Parts, func(p opencodeformat.Part) bool { return p.ID == r.PartID })
			m.Parts = m.Parts[:max(0, from)]
			m.Info.Error = nil
			return appendBlocks(m, out)
		}
		if why, ok := failed[m.Info.ID]; ok && (m.Info.Error == nil || m.Info.Error.Name == opencodeformat.Aborted) {
			m.Info.Error = timedOutError(why)
		}
		out = appendBlocks(m, out)
	}
	return out
}

// appendBlocks appends the blocks of a message. Blocks that are open in a transcript will never be
// closed.
func appendBlocks(m *opencodeformat.Exported, out []conversation.Block) []conversation.Block {
	attempt := -1 // start of the last attempt
	for i := range m.Parts {
		if m.Parts[i].Type == partStepStart {
			attempt = i
		}
	}
	for i := range m.Parts {
		p := &m.Parts[i]
		failed := i < attempt || m.Info.Time.Completed != 0 // the text belongs to a failed attempt
		if !isShown(p, &m.Info) || isText(p) && !isEnded(p) && !m.Info.FromUser() && failed {
			continue // the agent has dropped it
		}
		b := headOf(p, &m.Info)
		if p.Type != partTool {
			setText(&b, p.Text)
			b.Status = conversation.Complete
			last := i == len(m.Parts)-1
			if !m.Info.FromUser() && (!isEnded(p) || last && m.Info.Error != nil) {
				b.Status = conversation.Aborted
			}
			out = append(out, b)
			continue
		}
		setCall(p, &b)
		status, ended := callOutcome(p.State)
		if !ended {
			b.Status = conversation.Aborted
			out = append(out, b)
			continue
		}
		b.Status = status
		out = append(out, b, resultOf(p, b, status, p.State.Images()))
	}
	if e := m.Info.Error; e != nil && e.Name != opencodeformat.Aborted && !m.Info.FromUser() {
		out = append(out, failureOf(&m.Info, e))
	}
	return out
}
