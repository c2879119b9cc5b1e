package geminiformat

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/overwinter-dev/overwinter/internal/agent/stdio"
)

// Memory is the agent's main conversation, in order: the messages as it stored them, each with the
// calls that followed. The program itself keeps the calls of a session in a separate record and,
// when it loads that, sends each result to the model twice. Here a call appears once, after the
// answer that made it.
type Memory struct {
	Messages []*Message
}

// Message is a message of a person or an answer, with the calls that followed.
type Message struct {
	ID     string
	User   bool
	Fields map[string]json.RawMessage
	Calls  []json.RawMessage
}

// Note applies a line of the notebook.
func (m *Memory) Note(n stdio.Note) {
	switch {
	case n.Type == NoteChat && n.ID == "":
		var r Record
		var fields map[string]json.RawMessage
		if Decode(n.Data, &r) && json.Unmarshal(n.Data, &fields) == nil {
			m.record(r, fields)
		}
	case n.Type == NoteHistory:
		var d HistoryNote
		if Decode(n.Data, &d) {
			m.history(d)
		}
	}
}

func (m *Memory) find(id string) *Message {
	for _, have := range slices.Backward(m.Messages) {
		if have.ID == id {
			return have
		}
	}
	return nil
}

func (m *Memory) record(r Record, fields map[string]json.RawMessage) {
	switch {
	case r.RewindTo != "":
		if i := slices.IndexFunc(m.Messages, func(have *Message) bool { return have.ID == r.RewindTo }); i >= 0 {
			m.Messages = m.Messages[:i]
		}
		return
	case r.ID == "":
		return
	case r.Type == UserRecord:
		if responses := r.Responses(); len(responses) > 0 {
			for _, p := range responses {
				m.call(r.ID, Data(map[string]any{
					"id": p.ID, "name": p.Name, "args": map[string]any{}, "status": "error", "timestamp": r.Timestamp,
					"result": []map[string]Response{{"functionResponse": p}},
				}))
			}
			return
		}
		if m.find(r.ID) == nil {
			m.Messages = append(m.Messages, &Message{ID: r.ID, User: true, Fields: fields})
		}
		return
	case r.Type != GeminiRecord:
		return
	}
	if m.find(r.ID) == nil && (Words(r.Content) != "" || len(r.Thoughts) > 0 || r.Tokens != nil) {
		delete(fields, "toolCalls")
		m.Messages = append(m.Messages, &Message{ID: r.ID, Fields: fields})
	}
	var calls struct {
		ToolCalls []json.RawMessage `json:"toolCalls"`
	}
	if raw, ok := fields["toolCalls"]; ok {
		_ = json.Unmarshal(raw, &calls.ToolCalls) // ignore other forms
	} else if len(r.ToolCalls) > 0 {
		calls.ToolCalls = make([]json.RawMessage, len(r.ToolCalls))
		for i, c := range r.ToolCalls {
			calls.ToolCalls[i] = Data(c)
		}
	}
	for _, c := range calls.ToolCalls {
		m.call(r.ID, c)
	}
}

// call adds a call after the newest answer.
func (m *Memory) call(id string, raw json.RawMessage) {
	last := len(m.Messages) - 1
	if last < 0 || m.Messages[last].User {
		m.Messages = append(m.Messages, &Message{ID: id, Fields: map[string]json.RawMessage{
			"id": Quoted(id), "type": Quoted(GeminiRecord), "content": Quoted(""), "timestamp": timestamp(time.Now()),
		}})
		last++
	}
	m.Messages[last].Calls = append(m.Messages[last].Calls, raw)
}

// history replaces the messages.
func (m *Memory) history(d HistoryNote) {
	added := map[string]map[string]json.RawMessage{}
	for _, raw := range d.Added {
		var r Record
		var fields map[string]json.RawMessage
		if Decode(raw, &r) && r.ID != "" && json.Unmarshal(raw, &fields) == nil {
			added[r.ID] = fields
		}
	}
	var messages []*Message
	for _, id := range d.IDs {
		if fields, ok := added[id]; ok {
			var r Record
			Decode(Data(fields), &r)
			messages = append(messages, &Message{ID: id, User: r.Type == UserRecord, Fields: fields})
		} else if have := m.find(id); have != nil {
			messages = append(messages, have)
		}
	}
	m.Messages = messages
}

// Frames returns the number of updates that the program sends when it loads this memory.
func (m *Memory) Frames() int {
	n := 0
	for _, have := range m.Messages {
		var r Record
		Decode(Data(have.Fields), &r)
		if strings.TrimSpace(allWords(r.Content)) != "" {
			n++
		}
		if !have.User {
			n += len(r.Thoughts) + len(have.Calls)
		}
	}
	return n
}

// allWords returns the text of a content including its thoughts, as the program counts them.
func allWords(raw json.RawMessage) string {
	var s strings.Builder
	for _, p := range parts(raw) {
		s.WriteString(p.Text)
	}
	return s.String()
}

// Chat returns a chat file with this memory.
func (m *Memory) Chat(project, id string) []byte {
	hash := sha256.Sum256([]byte(project))
	var b bytes.Buffer
	line := func(raw json.RawMessage) {
		b.Write(raw)
		b.WriteByte('\n')
	}
	now := timestamp(time.Now())
	line(Data(map[string]any{
		"sessionId": id, "projectHash": hex.EncodeToString(hash[:]), "startTime": now, "lastUpdated": now, "kind": "main",
	}))
	for _, have := range m.Messages {
		fields := have.Fields
		if len(have.Calls) > 0 {
			fields = map[string]json.RawMessage{}
			for k, v := range have.Fields {
				fields[k] = v
			}
			fields["toolCalls"] = Data(have.Calls)
		}
		line(Data(fields))
	}
	return b.Bytes()
}

// Remind adds a note for the model, which no person wrote, as the message with that id.
func (m *Memory) Remind(id, note string) {
	m.Messages = append(m.Messages, &Message{ID: id, User: true, Fields: map[string]json.RawMessage{
		"id": Quoted(id), "timestamp": timestamp(time.Now()), "type": Quoted(UserRecord),
		"content": Data([]map[string]string{{"text": stdio.Reminder(note)}}),
	}})
}

// Short returns the part of a session's id that names its file.
func Short(id string) string { return id[:min(8, len(id))] }

func timestamp(t time.Time) json.RawMessage {
	return Quoted(t.UTC().Format("2006-01-02T15:04:05.000Z"))
}
