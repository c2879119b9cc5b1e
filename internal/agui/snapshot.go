package agui

import (
	"cmp"
	"encoding/json"
	"hash/maphash"

	"github.com/overwinter-dev/overwinter/internal/conversation"
)

// Bounds of a snapshot: clients of the protocol read at most 10 MB of one event, and encoders keep a hash of each block.
const (
	MaxSnapshotBytes    = 4 << 20
	MaxSnapshotMessages = 10_000
)

// Snapshot collects the conversation so far. It keeps the newest messages that fit, and always the
// message of one prompt.
type Snapshot struct {
	promptID string
	prompt   *item // the message of the prompt, if it would have been dropped
	items    []item
	bytes    int
	dropped  int
	older    bool            // blocks before the first were omitted
	users    map[string]bool // ids of the user's messages
	reached  bool            // the prompt has a message
}

// item is a block of a snapshot: a message, or a block that the stream shows after it.
type item struct {
	conversationID string
	block          conversation.Block // without content that message has
	digest         digest
	userID         string
	message        json.RawMessage // nil for a block that is open, and for a subagent
	bytes          int
}

// NewSnapshot returns an empty snapshot for the run of a prompt. leftOut is the number of the
// conversation's oldest blocks that are not added; promptID may be empty.
func NewSnapshot(promptID string, leftOut int64) *Snapshot {
	return &Snapshot{promptID: promptID, dropped: int(leftOut), older: leftOut > 0, users: map[string]bool{}}
}

// Add adds the next block of the conversation.
func (s *Snapshot) Add(conversationID string, b conversation.Block) {
	it := item{conversationID: conversationID, block: b, digest: digestOf(b)}
	if b.Type == conversation.Subagent {
		s.add(it, 0)
		return
	}
	if b.Status.Open() {
		s.add(it, len(b.Content)+len(b.Input)+len(b.Output))
		return
	}
	m := Message{ID: b.ID, Content: &b.Content, SubagentRunID: owner(conversationID)}
	switch b.Type {
	case conversation.UserMessage:
		m.Role, m.ID = "user", cmp.Or(b.PromptID, b.ID)
		if s.users[m.ID] { // of another run of the prompt
			return
		}
		it.userID = m.ID
		s.users[m.ID] = true
		s.reached = s.reached || m.ID == s.promptID
	case conversation.AssistantText:
		m.Role = "assistant"
	case conversation.Thinking:
		m.Role = "reasoning"
	case conversation.ToolUse:
		id := callID(b)
		m.Role, m.ID, m.Content = "assistant", id, nil
		m.ToolCalls = []ToolCall{{ID: id, Type: "function", Function: FunctionCall{Name: cmp.Or(b.Name, unnamedTool), Arguments: arguments(b.Input)}}}
	case conversation.ToolResult:
		text := plain(b.Output)
		m.Role, m.ToolCallID, m.Content = "tool", b.ToolUseID, &text
		if b.IsError {
			m.Error = cmp.Or(text, "the tool failed")
		}
	default:
		return
	}
	it.message = encode(m)
	it.block = conversation.Block{ID: b.ID, Type: b.Type}
	s.add(it, len(it.message))
}

// AddPrompt adds the message of the prompt if no block has it: at the end, or in front if the
// prompt has begun and blocks are omitted, because its message is then one of them.
func (s *Snapshot) AddPrompt(content string, begun bool) {
	if s.reached || s.promptID == "" {
		return
	}
	if s.older && begun {
		front := NewSnapshot(s.promptID, 0)
		front.AddPrompt(content, false)
		s.prompt, s.reached = &front.items[0], true
		s.dropped--
		return
	}
	s.Add(conversation.Main, conversation.Block{
		ID: s.promptID, PromptID: s.promptID, Type: conversation.UserMessage, Status: conversation.Complete, Content: content,
	})
}

func (s *Snapshot) add(it item, bytes int) {
	const overhead = 200 // of an item in memory
	it.bytes = bytes + overhead
	s.items = append(s.items, it)
	s.bytes += it.bytes
	for len(s.items) > 1 && (s.bytes > MaxSnapshotBytes || len(s.items) > MaxSnapshotMessages) {
		first := s.items[0]
		s.items[0] = item{} // for the garbage collector
		s.items = s.items[1:]
		s.bytes -= first.bytes
		if first.userID != "" && first.userID == s.promptID {
			s.prompt = &first
			continue
		}
		delete(s.users, first.userID)
		if first.message != nil {
			s.dropped++
		}
	}
}

// each calls f for every kept item.
func (s *Snapshot) each(f func(*item)) {
	if s.prompt != nil {
		f(s.prompt)
	}
	for i := range s.items {
		f(&s.items[i])
	}
}

// appendSSE appends the snapshot in the format of the stream.
func (s *Snapshot) appendSSE(dst []byte) []byte {
	if s.dropped > 0 {
		dst = AppendSSE(dst, []Event{{Type: "CUSTOM", Name: "messages_left_out", Value: encode(map[string]int{"count": s.dropped})}})
	}
	dst = append(dst, `data: {"type":"MESSAGES_SNAPSHOT","messages":[`...)
	more := false
	s.each(func(it *item) {
		if it.message == nil {
			return
		}
		if more {
			dst = append(dst, ',')
		}
		more = true
		dst = append(dst, it.message...)
	})
	return append(dst, "]}\n\n"...)
}

// digest returns the hash that is kept of a shown block.
type digest struct{ name, content uint64 }

var seed = maphash.MakeSeed()

func hash(text string) uint64 { return maphash.String(seed, text) }

func digestOf(b conversation.Block) digest {
	switch b.Type {
	case conversation.ToolUse:
		return digest{hash(cmp.Or(b.Name, unnamedTool)), hash(arguments(b.Input))}
	case conversation.ToolResult:
		return digest{hash(b.ToolUseID), hash(string(b.Output))}
	default:
		return digest{content: hash(b.Content)}
	}
}

const unnamedTool = "tool"

// callID returns the id of the call that a tool_use block shows.
func callID(b conversation.Block) string { return cmp.Or(b.ToolUseID, b.ID) }

// plain returns the text of a JSON string, and any other JSON unchanged.
func plain(raw json.RawMessage) string {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text
	}
	return string(raw)
}

func arguments(input json.RawMessage) string {
	if len(input) == 0 {
		return "{}"
	}
	return string(input)
}
