package geminiformat

import (
	"bytes"
	"encoding/json"

	"github.com/overwinter-dev/overwinter/internal/agent/stdio"
)

// ReadChat reads a chat file that the program has written. It returns the session's id and the
// program's memory of the session.
func ReadChat(data []byte) (id string, m Memory) {
	r := chatReader{messages: map[string]*Message{}, calls: map[string]struct{}{}}
	for line := range bytes.Lines(data) {
		var head Record
		if !Decode(line, &head) {
			continue
		}
		switch {
		case head.RewindTo != "":
			r.memory.record(head, nil)
		case head.Set != nil:
			r.replace(head.Set.Messages)
		case head.ID == "" && head.SessionID != "":
			id = head.SessionID
			r.replace(head.Messages)
		default:
			r.record(line)
		}
	}
	return id, r.memory
}

type chatReader struct {
	memory   Memory
	messages map[string]*Message // all messages so far, because a replaced one may return
	calls    map[string]struct{}
}

// replace replaces the messages, as the program does when it loads a session.
func (r *chatReader) replace(list []json.RawMessage) {
	if list == nil {
		return
	}
	r.memory.Messages = nil
	for _, raw := range list {
		var head Record
		if !Decode(raw, &head) {
			continue
		}
		if have, ok := r.messages[head.ID]; ok {
			r.memory.Messages = append(r.memory.Messages, have)
		}
		r.record(raw)
	}
}

// record adds a message and its new calls. The program repeats calls that are already known.
func (r *chatReader) record(line []byte) {
	var head Record
	var fields map[string]json.RawMessage
	if !Decode(line, &head) || json.Unmarshal(line, &fields) != nil {
		return
	}
	if head.Type == UserRecord {
		if responses := head.Responses(); len(responses) > 0 {
			var unknown []map[string]Response
			for _, p := range responses {
				if r.first(p.ID) {
					unknown = append(unknown, map[string]Response{"functionResponse": p})
				}
			}
			if len(unknown) == 0 {
				return
			}
			head.Content = Data(unknown)
		} else if head.Text() == "" {
			return // sent by the program itself
		}
	}
	var all struct {
		Calls []json.RawMessage `json:"toolCalls"`
	}
	var calls []json.RawMessage
	_ = json.Unmarshal(line, &all) // ignore other forms
	for _, raw := range all.Calls {
		var c ToolCall
		if Decode(raw, &c) && c.Ended() && r.first(c.ID) {
			calls = append(calls, raw)
		}
	}
	fields["toolCalls"] = Data(calls)
	r.memory.record(head, fields)
	for _, have := range r.memory.Messages {
		r.messages[have.ID] = have
	}
}

func (r *chatReader) first(call string) bool {
	if _, ok := r.calls[call]; ok {
		return false
	}
	r.calls[call] = struct{}{}
	return true
}

// Notes returns the lines of a notebook for a session with this memory.
func (m *Memory) Notes(session string) []stdio.Note {
	notes := []stdio.Note{{Type: stdio.NoteSession, ID: session}}
	for _, have := range m.Messages {
		notes = append(notes, stdio.Note{Type: NoteChat, Data: Data(have.Fields)})
		if len(have.Calls) > 0 {
			notes = append(notes, stdio.Note{Type: NoteChat, Data: Data(map[string]any{
				"id": have.ID, "timestamp": have.Fields["timestamp"], "type": GeminiRecord, "toolCalls": have.Calls,
			})})
		}
	}
	return notes
}

// ReadNotebook reads a notebook and returns its session and the memory in it.
func ReadNotebook(data []byte) (session string, m Memory) {
	for line := range bytes.Lines(data) {
		n, ok := stdio.ParseNote(line)
		if !ok {
			continue
		}
		if n.Type == stdio.NoteSession && n.ID != session {
			session, m = n.ID, Memory{}
		}
		m.Note(n)
	}
	return session, m
}
