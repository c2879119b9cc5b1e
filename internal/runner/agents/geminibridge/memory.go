package geminibridge

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/overwinter-dev/overwinter/internal/agent/gemini/geminiformat"
	"github.com/overwinter-dev/overwinter/internal/agent/stdio"
)

// Where a chat is written for the program to load it, below its own directory. The name of the
// directory is the slug of the only project that it is configured with.
const (
	slug        = "overwinter"
	restoredDay = "2020-01-01T00-00" // older than any file that it makes by itself
)

// memory is the agent's main conversation, in order: the messages as it stored them, each with the
// calls that followed. The program itself keeps the calls of a session in a separate record and,
// when it loads that, sends the model each result twice; here a call follows the answer that made
// it, once.
type memory struct {
	messages []*message
}

type message struct {
	id     string
	user   bool
	fields map[string]json.RawMessage
	calls  []json.RawMessage
}

// note takes up a line of the notebook.
func (m *memory) note(n stdio.Note) {
	switch {
	case n.Type == geminiformat.NoteChat && n.ID == "":
		var r geminiformat.Record
		var fields map[string]json.RawMessage
		if geminiformat.Decode(n.Data, &r) && json.Unmarshal(n.Data, &fields) == nil {
			m.record(r, fields)
		}
	case n.Type == geminiformat.NoteHistory:
		var d geminiformat.HistoryNote
		if geminiformat.Decode(n.Data, &d) {
			m.history(d)
		}
	}
}

func (m *memory) find(id string) *message {
	for _, have := range slices.Backward(m.messages) {
		if have.id == id {
			return have
		}
	}
	return nil
}

func (m *memory) record(r geminiformat.Record, fields map[string]json.RawMessage) {
	switch {
	case r.RewindTo != "":
		if i := slices.IndexFunc(m.messages, func(have *message) bool { return have.id == r.RewindTo }); i >= 0 {
			m.messages = m.messages[:i]
		}
		return
	case r.ID == "":
		return
	case r.Type == geminiformat.UserRecord:
		if responses := r.Responses(); len(responses) > 0 {
			for _, p := range responses {
				m.call(r.ID, geminiformat.Data(map[string]any{
					"id": p.ID, "name": p.Name, "args": map[string]any{}, "status": "error", "timestamp": r.Timestamp,
					"result": []map[string]geminiformat.Response{{"functionResponse": p}},
				}))
			}
			return
		}
		if m.find(r.ID) == nil {
			m.messages = append(m.messages, &message{id: r.ID, user: true, fields: fields})
		}
		return
	case r.Type != geminiformat.GeminiRecord:
		return
	}
	if m.find(r.ID) == nil && (geminiformat.Words(r.Content) != "" || len(r.Thoughts) > 0 || r.Tokens != nil) {
		delete(fields, "toolCalls")
		m.messages = append(m.messages, &message{id: r.ID, fields: fields})
	}
	var calls struct {
		ToolCalls []json.RawMessage `json:"toolCalls"`
	}
	if raw, ok := fields["toolCalls"]; ok {
		_ = json.Unmarshal(raw, &calls.ToolCalls) // of another shape: none
	} else if len(r.ToolCalls) > 0 {
		calls.ToolCalls = make([]json.RawMessage, len(r.ToolCalls))
		for i, c := range r.ToolCalls {
			calls.ToolCalls[i] = geminiformat.Data(c)
		}
	}
	for _, c := range calls.ToolCalls {
		m.call(r.ID, c)
	}
}

// call adds a call after the newest answer.
func (m *memory) call(id string, raw json.RawMessage) {
	last := len(m.messages) - 1
	if last < 0 || m.messages[last].user {
		m.messages = append(m.messages, &message{id: id, fields: map[string]json.RawMessage{
			"id": geminiformat.Quoted(id), "type": geminiformat.Quoted(geminiformat.GeminiRecord), "content": geminiformat.Quoted(""), "timestamp": timestamp(time.Now()),
		}})
		last++
	}
	m.messages[last].calls = append(m.messages[last].calls, raw)
}

// history puts other messages in the place of those that there are.
func (m *memory) history(d geminiformat.HistoryNote) {
	added := map[string]map[string]json.RawMessage{}
	for _, raw := range d.Added {
		var r geminiformat.Record
		var fields map[string]json.RawMessage
		if geminiformat.Decode(raw, &r) && r.ID != "" && json.Unmarshal(raw, &fields) == nil {
			added[r.ID] = fields
		}
	}
	var messages []*message
	for _, id := range d.IDs {
		if fields, ok := added[id]; ok {
			var r geminiformat.Record
			geminiformat.Decode(geminiformat.Data(fields), &r)
			messages = append(messages, &message{id: id, user: r.Type == geminiformat.UserRecord, fields: fields})
		} else if have := m.find(id); have != nil {
			messages = append(messages, have)
		}
	}
	m.messages = messages
}

// frames is how many updates the program sends when it has loaded this.
func (m *memory) frames() int {
	n := 0
	for _, have := range m.messages {
		var r geminiformat.Record
		geminiformat.Decode(geminiformat.Data(have.fields), &r)
		if strings.TrimSpace(allWords(r.Content)) != "" {
			n++
		}
		if !have.user {
			n += len(r.Thoughts) + len(have.calls)
		}
	}
	return n
}

// allWords are those of a content with its thoughts, as the program counts them.
func allWords(raw json.RawMessage) string {
	var s strings.Builder
	for _, p := range geminiformat.Parts(raw) {
		s.WriteString(p.Text)
	}
	return s.String()
}

// restore gives the program, in its directory dir, the chat of a session in a project and nothing
// else of it. It returns the file, to which the program appends. Everything in it is deleted first:
// the program would delete the file if it found another of the same session.
func (m *memory) restore(dir, project, id string) (string, error) {
	root := filepath.Join(dir, "tmp", slug)
	if err := os.RemoveAll(filepath.Join(root, "chats")); err != nil {
		return "", fmt.Errorf("restore the chat: %w", err)
	}
	chats := filepath.Join(root, "chats")
	if err := os.MkdirAll(chats, 0o700); err != nil {
		return "", fmt.Errorf("restore the chat: %w", err)
	}
	projects, err := json.Marshal(map[string]any{"projects": map[string]string{project: slug}})
	if err != nil {
		return "", fmt.Errorf("restore the chat: %w", err)
	}
	for name, content := range map[string][]byte{
		filepath.Join(dir, "projects.json"):  projects,
		filepath.Join(root, ".project_root"): []byte(project),
	} {
		if err := os.WriteFile(name, content, 0o600); err != nil {
			return "", fmt.Errorf("restore the chat: %w", err)
		}
	}
	if id == "" {
		return "", nil
	}
	name := filepath.Join(chats, "session-"+restoredDay+"-"+short(id)+".jsonl")
	if err := os.WriteFile(name, m.chat(project, id), 0o600); err != nil {
		return "", fmt.Errorf("restore the chat: %w", err)
	}
	return name, nil
}

// chat is a chat file with what is remembered.
func (m *memory) chat(project, id string) []byte {
	hash := sha256.Sum256([]byte(project))
	var b bytes.Buffer
	line := func(raw json.RawMessage) {
		b.Write(raw)
		b.WriteByte('\n')
	}
	now := timestamp(time.Now())
	line(geminiformat.Data(map[string]any{
		"sessionId": id, "projectHash": hex.EncodeToString(hash[:]), "startTime": now, "lastUpdated": now, "kind": "main",
	}))
	for _, have := range m.messages {
		fields := have.fields
		if len(have.calls) > 0 {
			fields = map[string]json.RawMessage{}
			for k, v := range have.fields {
				fields[k] = v
			}
			fields["toolCalls"] = geminiformat.Data(have.calls)
		}
		line(geminiformat.Data(fields))
	}
	return b.Bytes()
}

// short is the part of a session's id that names its file.
func short(id string) string { return id[:min(8, len(id))] }

func timestamp(t time.Time) json.RawMessage {
	return geminiformat.Quoted(t.UTC().Format("2006-01-02T15:04:05.000Z"))
}
