package codexformat

import (
	"bytes"
	"time"

	"github.com/overwinter-dev/overwinter/internal/agent/jsonscan"
)

// Record is a line of a rollout.
type Record struct {
	At      string
	Type    string
	Payload Payload
}

// Payload contains the fields of a rollout line that are used. The types of the line and of the
// payload determine which of them are set. Raw values alias the line.
type Payload struct {
	Type string

	ID     string // a thread's id
	Parent string
	Cwd    string
	// Source is what started the thread: a word, or {"subagent": …}.
	Source []byte

	Turn      string
	Thread    string
	Item      []byte
	Started   int64
	Completed int64
	Error     []byte
	Ended     int64

	Call      string
	Name      string
	Arguments string
	Input     string
	Output    []byte
	// Only in older versions:
	Role    string
	Content []byte
	Summary []byte
	Action  []byte
}

// Set stores the field with that name. It ignores unknown names.
func (p *Payload) Set(key, value []byte) {
	switch string(key) {
	case "type":
		p.Type = jsonscan.Text(value)
	case "id":
		p.ID = jsonscan.Text(value)
	case "parent_thread_id":
		p.Parent = jsonscan.Text(value)
	case "cwd":
		p.Cwd = jsonscan.Text(value)
	case "source":
		p.Source = value
	case "turn_id":
		p.Turn = jsonscan.Text(value)
	case "thread_id":
		p.Thread = jsonscan.Text(value)
	case "item":
		p.Item = value
	case "started_at_ms":
		p.Started = Number(value)
	case "completed_at_ms":
		p.Completed = Number(value)
	case "error":
		p.Error = value
	case "completed_at":
		p.Ended = Number(value)
	case "call_id":
		p.Call = jsonscan.Text(value)
	case "name":
		p.Name = jsonscan.Text(value)
	case "arguments":
		p.Arguments = jsonscan.Text(value)
	case "input":
		p.Input = jsonscan.Text(value)
	case "output":
		p.Output = value
	case "role":
		p.Role = jsonscan.Text(value)
	case "content":
		p.Content = value
	case "summary":
		p.Summary = value
	case "action":
		p.Action = value
	}
}

// Owner returns the metadata of the thread, from the first line of a rollout.
func Owner(rollout []byte) Payload {
	line, _, _ := bytes.Cut(rollout, []byte("\n"))
	l, ok := DecodeRecord(line)
	if !ok || l.Type != "session_meta" {
		return Payload{}
	}
	return l.Payload
}

// Reviews reports whether the thread is a review.
func (p Payload) Reviews() bool {
	return p.Parent != "" && jsonscan.Is(jsonscan.Field(p.Source, "subagent"), "review")
}

// idle lists the types of lines, and of their payloads, that are skipped. Most of a rollout
// consists of them.
var idle = []string{
	`"world_state"`, `"turn_context"`, `"token_usage_record"`, `"compacted"`, `"retained_context"`,
	`"message"`, `"reasoning"`, `"agent_message"`, `"token_count"`, `"thread_settings_applied"`,
}

// DecodeRecord decodes a line. It returns false if the line is invalid or not used.
func DecodeRecord(line []byte) (Record, bool) {
	// The types are at the beginning, before any long field.
	const beginning = 160
	head := line[:min(len(line), beginning)]
	for range 2 {
		_, kind, ok := bytes.Cut(head, []byte(`"type":`))
		if !ok {
			break
		}
		head = bytes.TrimLeft(kind, " ")
		for _, k := range idle {
			if bytes.HasPrefix(head, []byte(k)) {
				return Record{}, false
			}
		}
	}
	var l Record
	ok := jsonscan.Fields(line, func(key, value []byte) {
		switch string(key) {
		case "timestamp":
			l.At = jsonscan.Text(value)
		case "type":
			l.Type = jsonscan.Text(value)
		case "payload":
			jsonscan.Fields(value, l.Payload.Set)
		}
	})
	return l, ok
}

// Verdict returns how the turn ended, from the payload that ends it.
func (p Payload) Verdict() Verdict {
	v := Verdict{Status: Completed, MS: p.Ended * 1000}
	switch {
	case p.Type == "turn_aborted":
		v.Status = Interrupted
	case len(p.Error) > 0 && string(p.Error) != "null":
		v.Status, v.Message = Failed, Problem(p.Error)
	}
	return v
}

// Begins reports whether a line of a rollout begins a turn.
func (l Record) Begins() bool {
	return l.Payload.Type == "task_started" || l.Payload.Type == "turn_started"
}

// Time returns when the line was written.
func (l Record) Time() time.Time {
	at, _ := time.Parse(time.RFC3339Nano, l.At) // zero if there is none
	return at
}
