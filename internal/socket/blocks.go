package socket

import (
	"encoding/json"

	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/event"
	"github.com/overwinter-dev/overwinter/internal/eventlog"
	"github.com/overwinter-dev/overwinter/internal/resource"
)

// BlocksName is the sub-protocol of [Blocks].
const BlocksName = "overwinter.blocks.v1"

// Blocks is the protocol with the message names and blocks of an agent runtime: session:block:start
// and so on.
type Blocks struct{}

// The messages of Blocks.
const (
	typeSessionInit        Type = "session:init"
	typeSessionBlocks      Type = "session:blocks"
	typeSessionStatus      Type = "session:status"
	typeBlockStart         Type = "session:block:start"
	typeBlockDelta         Type = "session:block:delta"
	typeBlockUpdate        Type = "session:block:update"
	typeBlockComplete      Type = "session:block:complete"
	typeBlockRemoved       Type = "session:block:removed"
	typeFileCreated        Type = "session:file:created"
	typeFileModified       Type = "session:file:modified"
	typeFileDeleted        Type = "session:file:deleted"
	typeMetadataUpdate     Type = "session:metadata:update"
	typeOptionsUpdate      Type = "session:options:update"
	typeSubagentDiscovered Type = "session:subagent:discovered"
	typeSubagentCompleted  Type = "session:subagent:completed"
	typeSessionQuestion    Type = "session:question"
	typeSessionResolved    Type = "session:question:resolved"
	typeSessionEvent       Type = "session:event"
)

// thread is the conversation of a subagent.
type thread struct {
	ID     string               `json:"id"`
	Blocks []conversation.Block `json:"blocks"`
}

// blockPage is a part of a conversation.
type blockPage struct {
	Blocks    []conversation.Block `json:"blocks"`
	Subagents []thread             `json:"subagents"`
	More      bool                 `json:"more"`
}

func pageOf(c conversation.Conversation, more bool) *blockPage {
	p := &blockPage{Blocks: []conversation.Block{}, Subagents: []thread{}, More: more}
	for _, t := range c.Threads {
		if t.ID == conversation.Main {
			p.Blocks = append(p.Blocks, t.Blocks...)
			continue
		}
		p.Subagents = append(p.Subagents, thread{t.ID, append([]conversation.Block{}, t.Blocks...)})
	}
	return p
}

// sessionOnly is the common data of all messages.
type sessionOnly struct {
	SessionID string `json:"sessionId"`
}

// inConversation is the common data of all messages about blocks.
type inConversation struct {
	sessionOnly
	ConversationID string `json:"conversationId"`
}

type sessionInit struct {
	sessionOnly
	Session resource.SessionJSON `json:"session"`
	*blockPage
	Connected InitData `json:"connected"`
}

// Init implements Protocol.
func (Blocks) Init(i Opening) any {
	data := sessionInit{sessionOnly: sessionOnly{i.Session.ID}, Session: i.Session, Connected: i.Data}
	if i.History != nil {
		data.blockPage = pageOf(*i.History, i.More)
	}
	return Message{Type: typeSessionInit, Seq: i.Seq, Data: data}
}

// Page implements Protocol.
func (Blocks) Page(sessionID string, c conversation.Conversation, more bool) any {
	return Message{Type: typeSessionBlocks, Data: struct {
		sessionOnly
		*blockPage
	}{sessionOnly{sessionID}, pageOf(c, more)}}
}

type sessionQuestion struct {
	sessionOnly
	Question json.RawMessage `json:"question"`
}

// Question implements Protocol.
func (Blocks) Question(sessionID string, q json.RawMessage) any {
	return Message{Type: typeSessionQuestion, Data: sessionQuestion{sessionOnly{sessionID}, q}}
}

// Beat implements Protocol: a ping frame is enough.
func (Blocks) Beat() any { return nil }

// Messages implements Protocol.
func (b Blocks) Messages(line []byte) ([][]byte, error) {
	e, err := decode(line)
	if err != nil {
		return nil, err
	}
	return b.Encode(e)
}

// Encode returns the messages of an event. A subagent is announced before its block by a message
// without a seq: the client gets it again if it reconnects before it has received the block.
func (Blocks) Encode(e eventlog.Event) ([][]byte, error) {
	kind, data, announced := blocksOf(e)
	if data == nil {
		kind, data = typeSessionEvent, struct {
			sessionOnly
			other
		}{sessionOnly{e.SessionID}, other{e.Type, e.Data}}
	}
	var out [][]byte
	if announced != nil {
		hint, err := conversation.Encode(announced)
		if err != nil {
			return nil, err
		}
		out = append(out, hint)
	}
	message, err := conversation.Encode(Message{Type: kind, Seq: e.Seq, RunID: e.RunID, At: new(resource.Time(e.At)), Data: data})
	return append(out, message), err
}

// block is the data of messages with a block.
type block struct {
	inConversation
	BlockID string             `json:"blockId,omitempty"`
	Block   conversation.Block `json:"block"`
}

// subagent is the data of messages about a subagent.
type subagent struct {
	sessionOnly
	Subagent subagentState `json:"subagent"`
}

type subagentState struct {
	ID     string                   `json:"id"` // id of its conversation; empty until the agent has assigned one
	Name   string                   `json:"name"`
	Status conversation.BlockStatus `json:"status"`
}

// announce returns the message about the subagent of block b; nil for other blocks.
func announce(kind Type, e eventlog.Event, b conversation.Block) *Message {
	if b.Type != conversation.Subagent {
		return nil
	}
	return &Message{Type: kind, Data: subagent{sessionOnly{e.SessionID}, subagentState{b.SubagentID, b.Name, b.Status}}}
}

var fileTypes = map[string]Type{"created": typeFileCreated, "modified": typeFileModified, "deleted": typeFileDeleted}

// blocksOf returns no data for an event without a name in the protocol.
func blocksOf(e eventlog.Event) (kind Type, data any, announced *Message) {
	if kind, data, announced = blockOf(e); data != nil {
		return kind, data, announced
	}
	of := sessionOnly{e.SessionID}
	switch e.Type {
	case event.TypeStatus:
		kind, data = convertData(typeSessionStatus, e, func(d event.StatusData) any {
			return with(e.Data, struct {
				sessionOnly
				Runtime resource.RuntimeJSON `json:"runtime"`
			}{of, resource.RuntimeJSON{IsLoaded: !d.Status.Final(), Sandbox: d.Sandbox}})
		})
	case event.TypeFile:
		kind, data = convertData(typeFileModified, e, func(event.FileData) any {
			return struct {
				sessionOnly
				File json.RawMessage `json:"file"`
			}{of, e.Data}
		})
		var change struct {
			Change string `json:"change"`
		}
		if json.Unmarshal(e.Data, &change) == nil && fileTypes[change.Change] != "" {
			kind = fileTypes[change.Change]
		}
	case string(conversation.EventMetadataUpdate), string(conversation.EventTitle):
		kind, data = typeMetadataUpdate, struct {
			sessionOnly
			Metadata json.RawMessage `json:"metadata"`
		}{of, e.Data}
	case event.TypeSettings:
		kind, data = typeOptionsUpdate, struct {
			sessionOnly
			Options json.RawMessage `json:"options"`
		}{of, e.Data}
	case event.TypeQuestion:
		kind, data = convertData(typeSessionQuestion, e, func(d questionOnly) any {
			if d.data() == nil {
				return nil
			}
			return sessionQuestion{of, d.Question}
		})
	case event.TypeQuestionResolved:
		kind, data = typeSessionResolved, struct {
			sessionOnly
			Resolved json.RawMessage `json:"resolved"`
		}{of, e.Data}
	case string(conversation.EventError):
		kind, data = convertData(TypeError, e, func(d conversation.Problem) any {
			return struct {
				sessionOnly
				conversation.Problem
			}{of, d}
		})
	}
	return kind, data, nil
}

// blockOf is blocksOf for the events of blocks. An event of a subagent's block also announces the
// subagent.
func blockOf(e eventlog.Event) (kind Type, data any, announced *Message) {
	in := inConversation{sessionOnly{e.SessionID}, e.ConversationID}
	if in.ConversationID == "" {
		in.ConversationID = conversation.Main
	}
	switch e.Type {
	case string(conversation.EventBlockStart):
		kind, data = convertData(typeBlockStart, e, func(d conversation.BlockStart) any {
			announced = announce(typeSubagentDiscovered, e, d.Block)
			return block{in, "", d.Block}
		})
	case string(conversation.EventBlockComplete):
		kind, data = convertData(typeBlockComplete, e, func(d conversation.BlockComplete) any {
			announced = announce(typeSubagentCompleted, e, d.Block)
			return block{in, d.Block.ID, d.Block}
		})
	case string(conversation.EventBlockUpdate):
		kind, data = convertData(typeBlockUpdate, e, func(d conversation.BlockUpdate) any {
			return struct {
				inConversation
				conversation.BlockUpdate
			}{in, d}
		})
	case string(conversation.EventTextDelta):
		kind, data = convertData(typeBlockDelta, e, func(d conversation.TextDelta) any {
			return struct {
				inConversation
				conversation.TextDelta
			}{in, d}
		})
	case string(conversation.EventBlockRemoved):
		kind, data = convertData(typeBlockRemoved, e, func(d conversation.BlockRemoved) any {
			return struct {
				inConversation
				conversation.BlockRemoved
			}{in, d}
		})
	}
	return kind, data, announced
}
