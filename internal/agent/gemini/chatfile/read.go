package chatfile

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

// File is a chat file.
type File struct {
	id       string
	subagent bool
	path     string
	begun    time.Time
	data     []byte // one record per line
	read     bool
}

// Step is a message of a chat, or a rewind to one.
type Step struct {
	Conversation string // of a subagent, or conversation.Main
	At           time.Time
	Message      geminiformat.Record
	// Rewind is the id of the message that is removed, with everything after it. Empty if the step
	// is a message.
	Rewind string
}

// Open reports whether a file is a chat file in which no bridge has written, based on the first
// line that identifies it.
func Open(f transcript.File) (File, bool) {
	c := File{path: f.Path, data: f.Data}
	switch path.Ext(f.Path) {
	case ".jsonl":
	case ".json": // one object on several lines
		var line bytes.Buffer
		if json.Compact(&line, f.Data) == nil {
			c.data = line.Bytes()
		}
	default:
		return File{}, false
	}
	for line := range bytes.Lines(c.data) {
		if _, ok := stdio.ParseNote(line); ok {
			return File{}, false
		}
		var r geminiformat.Record
		switch {
		case !geminiformat.Decode(line, &r):
		case r.SessionID != "" && r.ID == "":
			c.id, c.begun, c.subagent = r.SessionID, geminiformat.Time(r.StartTime, time.Time{}), r.Kind == "subagent"
			return c, true
		case r.Type == geminiformat.UserRecord, r.Type == geminiformat.GeminiRecord, r.Set != nil:
			c.id = strings.TrimSuffix(path.Base(f.Path), ".jsonl")
			return c, true
		}
	}
	return File{}, false
}

// Read reads chats in the order in which they began, with those of subagents at their calls. A chat
// is read as a log: messages remain even if the agent has since dropped them. Read skips lines that
// it does not understand.
func Read(files []File) []Step {
	files = slices.Clone(files)
	slices.SortStableFunc(files, func(a, b File) int {
		return cmp.Or(a.begun.Compare(b.begun), cmp.Compare(a.path, b.path))
	})
	r := reader{subagents: map[string]*File{}}
	for i := range files {
		if f := &files[i]; f.subagent {
			r.subagents[f.id] = f
		}
	}
	for i := range files {
		if !files[i].subagent {
			r.chat(conversation.Main, &files[i])
		}
	}
	for i := range files {
		r.called(&files[i]) // those that no call names
	}
	return r.steps
}

type reader struct {
	steps     []Step
	subagents map[string]*File
	at        time.Time // of the newest message that has one
}

func (r *reader) chat(conv string, f *File) {
	f.read = true
	r.at = f.begun
	for line := range bytes.Lines(f.data) {
		var rec geminiformat.Record
		if !geminiformat.Decode(line, &rec) {
			continue
		}
		switch {
		case rec.RewindTo != "":
			if conv == conversation.Main {
				r.steps = append(r.steps, Step{Conversation: conv, At: r.at, Rewind: rec.RewindTo})
			}
		case rec.Set != nil:
			r.messages(conv, rec.Set.Messages)
		case rec.ID == "":
			r.messages(conv, rec.Messages)
		default:
			r.message(conv, rec)
		}
	}
}

func (r *reader) messages(conv string, list []json.RawMessage) {
	for _, raw := range list {
		var m geminiformat.Record
		if geminiformat.Decode(raw, &m) && m.ID != "" {
			r.message(conv, m)
		}
	}
}

// message reads a message, with the subagents that it called.
func (r *reader) message(conv string, m geminiformat.Record) {
	r.at = geminiformat.Time(m.Timestamp, r.at)
	r.steps = append(r.steps, Step{Conversation: conv, At: r.at, Message: m})
	for _, call := range m.ToolCalls {
		if f, ok := r.subagents[call.AgentID]; ok {
			r.called(f)
		}
	}
}

// called reads the chat of a subagent, once.
func (r *reader) called(f *File) {
	if f.read {
		return
	}
	at := r.at
	r.chat(f.id, f)
	r.at = at
}
