package gemini

import (
	"bytes"
	"cmp"
	"slices"
	"time"

	"github.com/overwinter-dev/overwinter/internal/agent/gemini/chatfile"
	"github.com/overwinter-dev/overwinter/internal/agent/gemini/geminiformat"
	"github.com/overwinter-dev/overwinter/internal/agent/stdio"
	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/transcript"
)

// Parse reads the notebook of a session, or else the chat files of the program itself. It skips
// lines that it does not understand and never fails.
func (Adapter) Parse(files []transcript.File) (conversation.Conversation, error) {
	p := parser{reader: reader{seen: map[string]struct{}{}}}
	var notebooks []transcript.File
	var chats []chatfile.File
	for _, f := range files {
		if c, ok := chatfile.Open(f); ok {
			chats = append(chats, c)
		} else if isNotebook(f.Data) {
			notebooks = append(notebooks, f)
		}
	}
	if len(notebooks) == 0 {
		p.chats(chatfile.Read(chats))
	}
	slices.SortStableFunc(notebooks, func(a, b transcript.File) int { return cmp.Compare(a.Path, b.Path) })
	for _, j := range notebooks {
		p.notebook(j.Data)
	}
	return p.folder.Conversation(), nil
}

// isNotebook reports whether a bridge has written in a file.
func isNotebook(data []byte) bool {
	for line := range bytes.Lines(data) {
		if _, ok := stdio.ParseNote(line); ok {
			return true
		}
	}
	return false
}

type parser struct {
	reader
	folder conversation.Folder
	// shown are the blocks of the main conversation that a rewind may remove, by their message.
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

// notebook reads the notes of the bridge.
func (p *parser) notebook(data []byte) {
	for line := range bytes.Lines(data) {
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

// chats turns the steps of chat files into blocks.
func (p *parser) chats(steps []chatfile.Step) {
	for _, s := range steps {
		if s.Rewind != "" {
			p.rewind(s)
			continue
		}
		events := p.record(s.Conversation, s.Message, s.At)
		p.fold(events)
		if s.Conversation != conversation.Main {
			continue
		}
		m := shownMessage{id: s.Message.ID}
		for _, e := range events {
			if d, ok := e.Data.(conversation.BlockComplete); ok {
				m.blocks = append(m.blocks, d.Block.ID)
			}
		}
		p.shown = append(p.shown, m)
	}
}

// rewind removes a message and everything after it. An unknown one removes everything, as it does
// for the agent.
func (p *parser) rewind(s chatfile.Step) {
	i := max(0, slices.IndexFunc(p.shown, func(m shownMessage) bool { return m.id == s.Rewind }))
	for _, m := range p.shown[i:] {
		for _, b := range m.blocks {
			p.fold([]conversation.Event{{
				Type: conversation.EventBlockRemoved, ConversationID: conversation.Main, At: s.At,
				Data: conversation.BlockRemoved{BlockID: b},
			}})
		}
	}
	p.shown = p.shown[:i]
}
