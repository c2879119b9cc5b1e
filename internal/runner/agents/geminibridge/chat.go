package geminibridge

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/overwinter-dev/overwinter/internal/agent/gemini/geminiformat"
	"github.com/overwinter-dev/overwinter/internal/agent/stdio"
	"github.com/overwinter-dev/overwinter/internal/lazyregexp"
	"github.com/overwinter-dev/overwinter/internal/runner/agents/acpclient"
)

// tail reads the lines appended to a file.
type tail struct {
	name   string
	offset int64
	rest   []byte // of an incomplete line
	begun  bool   // of a subagent: its start has been reported
}

// lines returns the complete lines appended since the last call.
func (t *tail) lines() [][]byte {
	info, err := os.Stat(t.name)
	if err != nil || info.Size() <= t.offset {
		return nil // the file does not exist yet, or has not grown
	}
	f, err := os.Open(t.name)
	if err != nil {
		return nil
	}
	defer f.Close() // opened only for reading
	more, err := io.ReadAll(io.NewSectionReader(f, t.offset, info.Size()-t.offset))
	if err != nil {
		return nil
	}
	t.offset += int64(len(more))
	var out [][]byte
	all := append(t.rest, more...)
	for {
		line, rest, ok := bytes.Cut(all, []byte("\n"))
		if !ok {
			t.rest = bytes.Clone(all)
			return out
		}
		if len(bytes.TrimSpace(line)) > 0 {
			out = append(out, line)
		}
		all = rest
	}
}

// chatChanges finds the new content in the lines of a chat file. The program repeats a record with
// each of its calls, and everything when it loads a session.
type chatChanges struct {
	records map[string]struct{}
	calls   map[string]struct{}
	kept    []string // ids of messages that the program remembers, as it reports them
}

func newChatChanges() *chatChanges {
	return &chatChanges{records: map[string]struct{}{}, calls: map[string]struct{}{}}
}

// item is one new record.
type item struct {
	note stdio.Note
	// says is the record of an answer of the model, if it is one.
	says *geminiformat.Record
	// calls are the calls that have ended.
	calls []string
	// person is set for a message of the user, or of the program in the user's name.
	person bool
}

// read returns the new content in a line of the chat file of a conversation.
func (s *chatChanges) read(conv string, line []byte) []item {
	var r geminiformat.Record
	if !geminiformat.Decode(line, &r) {
		return nil
	}
	chat := func(raw json.RawMessage) stdio.Note {
		return stdio.Note{Type: geminiformat.NoteChat, ID: conv, Data: raw}
	}
	switch {
	case r.RewindTo != "":
		return []item{{note: chat(line)}}
	case r.Set != nil:
		return s.replaced(conv, r.Set.Messages)
	case r.ID == "":
		return nil
	case r.Type == geminiformat.UserRecord:
		return s.user(chat, r, line)
	case r.Type == geminiformat.GeminiRecord:
		return s.gemini(chat, r, line)
	}
	return nil
}

func (s *chatChanges) user(chat func(json.RawMessage) stdio.Note, r geminiformat.Record, line []byte) []item {
	if !s.first(r.ID) {
		return nil
	}
	responses := r.Responses()
	if len(responses) == 0 {
		if r.Text() == "" {
			return nil
		}
		s.kept = append(s.kept, r.ID)
		return []item{{note: chat(line), person: true}}
	}
	var unknown []map[string]geminiformat.Response
	for _, p := range responses {
		if _, ok := s.calls[p.ID]; !ok {
			s.calls[p.ID] = struct{}{}
			unknown = append(unknown, map[string]geminiformat.Response{"functionResponse": p})
		}
	}
	if len(unknown) == 0 {
		return nil
	}
	return []item{{note: chat(with(line, "content", geminiformat.Data(unknown)))}}
}

func (s *chatChanges) gemini(chat func(json.RawMessage) stdio.Note, r geminiformat.Record, line []byte) []item {
	var items []item
	if s.first(r.ID) && (geminiformat.Words(r.Content) != "" || len(r.Thoughts) > 0 || r.Tokens != nil) {
		s.kept = append(s.kept, r.ID)
		items = append(items, item{note: chat(with(line, "toolCalls", nil)), says: &r})
	}
	var all struct {
		Calls []json.RawMessage `json:"toolCalls"`
	}
	if len(r.ToolCalls) == 0 || json.Unmarshal(line, &all) != nil {
		return items
	}
	var raw []json.RawMessage
	var ids []string
	for _, c := range all.Calls {
		var call geminiformat.ToolCall
		if !geminiformat.Decode(c, &call) || !call.Ended() {
			continue
		}
		if _, ok := s.calls[call.ID]; ok {
			continue
		}
		s.calls[call.ID] = struct{}{}
		raw, ids = append(raw, c), append(ids, call.ID)
	}
	if len(raw) > 0 {
		items = append(items, item{calls: ids, note: chat(geminiformat.Data(map[string]any{
			"id": r.ID, "timestamp": r.Timestamp, "type": geminiformat.GeminiRecord, "model": r.Model, "toolCalls": raw,
		}))})
	}
	return items
}

// replaced handles a replacement of the program's messages: it has dropped some, or written a
// summary.
func (s *chatChanges) replaced(conv string, messages []json.RawMessage) []item {
	if conv != "" || messages == nil {
		return nil
	}
	var ids []string
	var added []json.RawMessage
	for _, raw := range messages {
		var r geminiformat.Record
		if !geminiformat.Decode(raw, &r) || r.ID == "" {
			continue
		}
		switch _, known := s.records[r.ID]; {
		case slices.Contains(s.kept, r.ID):
			ids = append(ids, r.ID)
		case known, r.Type == geminiformat.UserRecord && (len(r.Responses()) > 0 || r.Text() == ""), r.Type != geminiformat.UserRecord && geminiformat.Words(r.Content) == "":
		default:
			s.first(r.ID)
			ids, added = append(ids, r.ID), append(added, raw)
		}
	}
	if len(added) == 0 && slices.Equal(ids, s.kept) {
		return nil
	}
	s.kept = ids
	return []item{{note: stdio.Note{Type: geminiformat.NoteHistory, Data: geminiformat.Data(geminiformat.HistoryNote{At: acpclient.Now(), IDs: ids, Added: added})}}}
}

// remembers sets the memory that the program already has.
func (s *chatChanges) remembers(m geminiformat.Memory) {
	for _, have := range m.Messages {
		s.first(have.ID)
		s.kept = append(s.kept, have.ID)
		for _, raw := range have.Calls {
			var c geminiformat.ToolCall
			if geminiformat.Decode(raw, &c) {
				s.calls[c.ID] = struct{}{}
			}
		}
	}
}

func (s *chatChanges) first(id string) bool {
	if _, ok := s.records[id]; ok {
		return false
	}
	s.records[id] = struct{}{}
	return true
}

// with returns a JSON object with a field set or removed.
func with(line []byte, key string, value json.RawMessage) json.RawMessage {
	var fields map[string]json.RawMessage
	if json.Unmarshal(line, &fields) != nil {
		return line
	}
	delete(fields, key)
	if value != nil {
		fields[key] = value
	}
	return geminiformat.Data(fields)
}

// comment matches the comments that the program removes from stored text, in addition to zero-width
// characters and white space at both ends.
var comment = lazyregexp.New(`(?s)<!--.*?-->`)

// written returns a text in the form in which the program stores it.
func written(text string) string {
	text = strings.Map(func(c rune) rune {
		if c >= '\u200b' && c <= '\u200f' || c == '\ufeff' {
			return -1
		}
		return c
	}, text)
	for {
		next := comment.ReplaceAllString(text, "")
		if next == text {
			return strings.TrimFunc(text, geminiformat.IsSpace)
		}
		text = next
	}
}

// chatOf finds the chat file of a session that the program has started.
func chatOf(dir, id string) string {
	names, err := filepath.Glob(filepath.Join(dir, "tmp", slug, "chats", "session-*-"+geminiformat.Short(id)+".jsonl"))
	if err != nil || len(names) == 0 {
		return ""
	}
	return names[0]
}
