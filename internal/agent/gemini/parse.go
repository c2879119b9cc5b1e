package gemini

import (
	"bytes"
	"cmp"
	"encoding/json"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/overwinter-dev/overwinter/internal/agent/gemini/geminiformat"
	"github.com/overwinter-dev/overwinter/internal/agent/stdio"
	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/transcript"
)

// Parse reads the journal of a session, as the bridge writes it. Where there is none it reads the
// agent's own chat files: <…>/session-*.jsonl, or those of older releases, session-*.json, in the order
// in which they were begun, with those of subagents where they were called. Lines that it does not understand are skipped; it never fails.
func (Adapter) Parse(files []transcript.File) (conversation.Conversation, error) {
	p := parser{reader: reader{seen: map[string]struct{}{}}, agents: map[string]*chatFile{}}
	var journals, chats []*chatFile
	for _, f := range files {
		switch c := open(f); c.kind {
		case journalFile:
			journals = append(journals, c)
		case mainFile:
			chats = append(chats, c)
		case subagentFile:
			p.agents[c.id] = c
			p.order = append(p.order, c)
		}
	}
	sortFiles(journals)
	for _, j := range journals {
		p.journal(j)
	}
	if len(journals) > 0 {
		return p.folder.Conversation(), nil
	}
	sortFiles(chats)
	sortFiles(p.order)
	for _, c := range chats {
		p.chat(conversation.Main, c)
	}
	for _, c := range p.order {
		p.subagent(c)
	}
	return p.folder.Conversation(), nil
}

// chatFile is a transcript.
type chatFile struct {
	kind  fileKind
	id    string
	path  string
	begun time.Time
	data  []byte
	read  bool
}

type fileKind int

const (
	otherFile fileKind = iota
	journalFile
	mainFile
	subagentFile
)

// open finds out what a file is, by its first line that says so.
func open(f transcript.File) *chatFile {
	c := &chatFile{path: f.Path, data: f.Data}
	if path.Ext(f.Path) != ".jsonl" && path.Ext(f.Path) != ".json" {
		return c
	}
	if path.Ext(f.Path) == ".json" { // one object, on many lines
		var line bytes.Buffer
		if json.Compact(&line, f.Data) == nil {
			c.data = line.Bytes()
		}
	}
	for line := range bytes.Lines(c.data) {
		if n, ok := stdio.ParseNote(line); ok {
			c.kind, c.id = journalFile, n.ID
			return c
		}
		var r geminiformat.Record
		if !geminiformat.Decode(line, &r) {
			continue
		}
		if r.SessionID != "" && r.ID == "" {
			c.kind, c.id, c.begun = mainFile, r.SessionID, when(r.StartTime, time.Time{})
			if r.Kind == "subagent" {
				c.kind = subagentFile
			}
			return c
		}
		if r.Type == geminiformat.UserRecord || r.Type == geminiformat.GeminiRecord || r.Set != nil {
			c.kind, c.id = mainFile, strings.TrimSuffix(path.Base(f.Path), ".jsonl")
			return c
		}
	}
	return c
}

func sortFiles(files []*chatFile) {
	slices.SortStableFunc(files, func(a, b *chatFile) int {
		return cmp.Or(a.begun.Compare(b.begun), cmp.Compare(a.path, b.path))
	})
}

type parser struct {
	reader
	folder conversation.Folder
	agents map[string]*chatFile
	order  []*chatFile
	// shown are the blocks of the main conversation by the message that they came with, as far as
	// a rewind may take them back.
	shown []shownMessage
	at    time.Time // of the newest line that has one
}

type shownMessage struct {
	id     string
	blocks []string
}

func (p *parser) fold(events []conversation.Event) {
	for _, e := range events {
		p.folder.Add(e)
	}
}

// journal reads the notes of the bridge.
func (p *parser) journal(c *chatFile) {
	for line := range bytes.Lines(c.data) {
		n, ok := stdio.ParseNote(line)
		if !ok {
			continue
		}
		var d geminiformat.Stamp
		if n.Type != geminiformat.NoteChat && geminiformat.Decode(n.Data, &d) && !d.At.IsZero() {
			p.at = d.At.UTC()
		}
		p.fold(p.apply(n, p.at))
	}
	p.fold(p.Cut(p.at))
}

// chat reads a chat file of the agent. It is read as a log: messages stay, even if the agent has
// dropped them since, unless the conversation was rewound.
func (p *parser) chat(conv string, c *chatFile) {
	c.read = true
	p.at = c.begun
	for line := range bytes.Lines(c.data) {
		var r geminiformat.Record
		if !geminiformat.Decode(line, &r) {
			continue
		}
		switch {
		case r.RewindTo != "":
			if conv == conversation.Main {
				p.rewind(r.RewindTo)
			}
		case r.Set != nil:
			p.messages(conv, r.Set.Messages)
		case r.ID == "":
			p.messages(conv, r.Messages)
		default:
			p.message(conv, r)
		}
	}
}

func (p *parser) messages(conv string, list []json.RawMessage) {
	for _, raw := range list {
		var m geminiformat.Record
		if geminiformat.Decode(raw, &m) {
			p.message(conv, m)
		}
	}
}

// message reads a message, with the subagents that it called.
func (p *parser) message(conv string, r geminiformat.Record) {
	if r.ID == "" {
		return
	}
	p.at = when(r.Timestamp, p.at)
	events := p.record(conv, r, p.at)
	p.fold(events)
	if conv == conversation.Main {
		m := shownMessage{id: r.ID}
		for _, e := range events {
			if d, ok := e.Data.(conversation.BlockComplete); ok {
				m.blocks = append(m.blocks, d.Block.ID)
			}
		}
		p.shown = append(p.shown, m)
	}
	for _, call := range r.ToolCalls {
		if c, ok := p.agents[call.AgentID]; ok {
			p.subagent(c)
		}
	}
}

// subagent reads the chat of a subagent, once.
func (p *parser) subagent(c *chatFile) {
	if c.read {
		return
	}
	at := p.at
	p.chat(c.id, c)
	p.at = at
}

// rewind removes a message and everything after it. An unknown one removes everything, as it does
// for the agent.
func (p *parser) rewind(id string) {
	i := max(0, slices.IndexFunc(p.shown, func(m shownMessage) bool { return m.id == id }))
	for _, m := range p.shown[i:] {
		for _, b := range m.blocks {
			p.fold([]conversation.Event{{
				Type: conversation.EventBlockRemoved, ConversationID: conversation.Main, At: p.at,
				Data: conversation.BlockRemoved{BlockID: b},
			}})
		}
	}
	p.shown = p.shown[:i]
}
