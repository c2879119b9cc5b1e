package socket

import (
	"bytes"
	"encoding/json"

	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/event"
	"github.com/overwinter-dev/overwinter/internal/eventlog"
	"github.com/overwinter-dev/overwinter/internal/resource"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// Type names a message.
type Type string

// Chat is the protocol with the message names of a chat: message, chunk, status and so on.
type Chat struct{}

// The messages of Chat for a session's events.
const (
	typeMessage          Type = "message"
	typeMessageUpdated   Type = "message.updated"
	typeMessagesRemoved  Type = "messages.removed"
	typeChunk            Type = "chunk"
	typeStatus           Type = "status"
	typePrompt           Type = "prompt"
	typeAgentStatus      Type = "agentStatus"
	typeQuestion         Type = "question"
	typeQuestionResolved Type = "question.resolved"
	TypeFilesChanged     Type = "files-changed"
	typeTitle            Type = "title"
	typeScreenshot       Type = "screenshot"
	TypeGitState         Type = "git-state"
	typeReviewRequested  Type = "review-requested"
	typeReviewResult     Type = "review-result"
	typePRCreated        Type = "pr-created"
	typePRUpdated        Type = "pr-updated"
	TypeError            Type = "error"
	typeEvent            Type = "event"
)

// The messages about the connection itself.
const (
	typeInit     Type = "init"
	typeMessages Type = "messages"
	TypeCaughtUp Type = "caught_up"
	TypeGap      Type = "gap"
	TypeEnd      Type = "end"
	TypeAck      Type = "ack"
	TypePong     Type = "pong"
	TypeDiff     Type = "diff"
)

// Message is a message of the server. Messages from the log have its position.
type Message struct {
	Type           Type           `json:"type"`
	Seq            int64          `json:"seq,omitempty"`
	ConversationID string         `json:"conversationId,omitempty"`
	RunID          string         `json:"runId,omitempty"`
	At             *resource.Time `json:"at,omitempty"`
	// ID and For are the id and the type of the request that is answered.
	ID   string `json:"id,omitempty"`
	For  string `json:"for,omitempty"`
	Data any    `json:"data,omitempty"`
}

// Utterance is a message of a conversation: a block in the form for people.
type Utterance struct {
	ID             string                   `json:"id"`
	ConversationID string                   `json:"conversationId"`
	Role           Role                     `json:"role"`
	Kind           conversation.BlockType   `json:"kind"`
	Status         conversation.BlockStatus `json:"status"`
	Content        string                   `json:"content"`
	Parts          []conversation.Block     `json:"parts"` // the block, unless it is text
	Subtype        string                   `json:"subtype,omitempty"`
	PromptID       string                   `json:"promptId,omitempty"`
	AuthorID       string                   `json:"authorId,omitempty"`
	AuthorName     string                   `json:"authorName,omitempty"`
	RunID          string                   `json:"runId,omitempty"`
	TruncatedBytes int64                    `json:"truncatedBytes,omitempty"`
	CreatedAt      resource.Time            `json:"createdAt"`
	CompletedAt    *resource.Time           `json:"completedAt,omitempty"`
}

// Role is the side of a conversation that a message belongs to.
type Role string

// The roles of messages.
const (
	roleUser      Role = "user"
	roleAssistant Role = "assistant"
	roleTool      Role = "tool"
	roleSystem    Role = "system"
)

// utteranceOf converts a block of a conversation.
func utteranceOf(conversationID string, b conversation.Block) Utterance {
	if conversationID == "" {
		conversationID = conversation.Main
	}
	c := Utterance{
		ID: b.ID, ConversationID: conversationID, Kind: b.Type, Status: b.Status, Content: b.Content, Parts: []conversation.Block{},
		Subtype: b.Subtype, PromptID: b.PromptID, AuthorID: b.Author, AuthorName: b.Author, RunID: b.RunID,
		TruncatedBytes: b.TruncatedBytes, CreatedAt: resource.Time(b.CreatedAt),
	}
	if b.CompletedAt != nil {
		c.CompletedAt = new(resource.Time(*b.CompletedAt))
	}
	switch b.Type {
	case conversation.UserMessage:
		c.Role = roleUser
	case conversation.AssistantText, conversation.Thinking:
		c.Role = roleAssistant
	case conversation.System:
		c.Role, c.Content = roleSystem, b.Message
	case conversation.ToolUse, conversation.ToolResult, conversation.Subagent:
		c.Role, c.Parts = roleTool, []conversation.Block{b}
	default: // of a later release
		c.Role, c.Parts = roleSystem, []conversation.Block{b}
	}
	return c
}

// History converts the blocks of a page of a conversation, in order.
func History(c conversation.Conversation) []Utterance {
	out := []Utterance{}
	for _, t := range c.Threads {
		for _, b := range t.Blocks {
			out = append(out, utteranceOf(t.ID, b))
		}
	}
	return out
}

// chunk is text that is appended to a message.
type chunk struct {
	MessageID string `json:"messageId"`
	Content   string `json:"content"`
}

// update is a change of a message.
type update struct {
	ID      string               `json:"id"`
	Updates conversation.Updates `json:"updates"`
}

// removed are messages that the agent or a revert removed.
type removed struct {
	MessageIDs []string `json:"messageIds"`
}

// Sandbox is a session's sandbox in the form for clients.
type Sandbox struct {
	SandboxRunning  bool `json:"sandboxRunning"`
	RunnerConnected bool `json:"runnerConnected"`
}

// SandboxOf converts the sandbox of a session; nil means none.
func SandboxOf(s *resource.SandboxJSON) Sandbox {
	running := s != nil && s.Status != session.SandboxTerminated
	return Sandbox{SandboxRunning: running, RunnerConnected: running && s.Status == session.SandboxReady}
}

// Work is a session's queue in the form for clients.
type Work struct {
	RunnerBusy    bool  `json:"runnerBusy"`
	PromptsQueued int64 `json:"promptsQueued"`
}

// queueData is a change of a session's queue.
type queueData struct {
	Work
	Queue json.RawMessage `json:"queue"`
}

// with returns a JSON object with additional fields. Data of events is passed through unchanged, so
// that fields of later releases are preserved.
func with(object json.RawMessage, fields any) any {
	more, err := conversation.Encode(fields)
	object = bytes.TrimSpace(object)
	if err != nil || len(object) < 2 || object[0] != '{' {
		return nil
	}
	head := bytes.TrimRight(object[:len(object)-1], " \t\r\n")
	if len(head) > 1 {
		head = append(head[:len(head):len(head)], ',')
	}
	return json.RawMessage(append(head[:len(head):len(head)], more[1:]...))
}

// agentStatus is the activity of the agent, with the data of the event that reports it.
type agentStatus struct {
	Status string          `json:"status"` // working, idle
	Event  string          `json:"event"`
	Detail json.RawMessage `json:"detail"`
}

// questionOnly is the data of a question event.
type questionOnly struct {
	Question json.RawMessage `json:"question"`
}

// data returns the question, or nil.
func (q questionOnly) data() any {
	if len(q.Question) == 0 {
		return nil
	}
	return q.Question
}

type files struct {
	Files []json.RawMessage `json:"files"`
}

// FilesChanged is the response to a request for the changed files: a diff without the text of the
// changes.
type FilesChanged struct {
	Files        []json.RawMessage `json:"files"`
	FilesChanged int               `json:"filesChanged"`
	Additions    int64             `json:"additions"`
	Deletions    int64             `json:"deletions"`
	Truncated    bool              `json:"truncated"`
	ComputedAt   *resource.Time    `json:"computedAt"`
}

// other is an event without a name in the protocol.
type other struct {
	Type string          `json:"type"`
	Data json.RawMessage `json:"data"`
}

// Beat implements Protocol: a ping frame is enough.
func (Chat) Beat() any { return nil }

// Messages implements Protocol.
func (c Chat) Messages(line []byte) ([][]byte, error) {
	e, err := decode(line)
	if err != nil {
		return nil, err
	}
	return c.Encode(e)
}

// Encode returns the message of an event.
func (Chat) Encode(e eventlog.Event) ([][]byte, error) {
	kind, data := translate(e)
	if data == nil {
		kind, data = typeEvent, other{Type: e.Type, Data: e.Data}
	}
	message, err := conversation.Encode(Message{
		Type: kind, Seq: e.Seq, ConversationID: e.ConversationID, RunID: e.RunID, At: new(resource.Time(e.At)), Data: data,
	})
	return [][]byte{message}, err
}

// translate returns no data for an event without a name in the protocol.
func translate(e eventlog.Event) (Type, any) {
	switch e.Type {
	case string(conversation.EventBlockStart):
		return convertData(typeMessage, e, func(d conversation.BlockStart) any { return utteranceOf(e.ConversationID, d.Block) })
	case string(conversation.EventBlockComplete):
		return convertData(typeMessageUpdated, e, func(d conversation.BlockComplete) any { return utteranceOf(e.ConversationID, d.Block) })
	case string(conversation.EventBlockUpdate):
		return convertData(typeMessageUpdated, e, func(d conversation.BlockUpdate) any { return update{d.BlockID, d.Updates} })
	case string(conversation.EventTextDelta):
		return convertData(typeChunk, e, func(d conversation.TextDelta) any { return chunk{d.BlockID, d.Delta} })
	case string(conversation.EventBlockRemoved):
		return convertData(typeMessagesRemoved, e, func(d conversation.BlockRemoved) any { return removed{[]string{d.BlockID}} })
	case event.TypeStatus:
		return convertData(typeStatus, e, func(d event.StatusData) any { return with(e.Data, SandboxOf(d.Sandbox)) })
	case event.TypeQueue:
		return convertData(typeStatus, e, func(d event.QueueData) any { return queueData{workOf(d), e.Data} })
	case event.TypePrompt:
		return typePrompt, e.Data
	case event.TypeTurnStart, string(conversation.EventMetadataUpdate):
		return typeAgentStatus, agentStatus{"working", e.Type, e.Data}
	case event.TypeTurnEnd:
		return typeAgentStatus, agentStatus{"idle", e.Type, e.Data}
	case event.TypeQuestion:
		return convertData(typeQuestion, e, func(d questionOnly) any { return d.data() })
	case event.TypeQuestionResolved:
		return typeQuestionResolved, e.Data
	case event.TypeFile:
		return TypeFilesChanged, files{[]json.RawMessage{e.Data}}
	case string(conversation.EventTitle):
		return typeTitle, e.Data
	case string(conversation.EventScreenshot):
		return typeScreenshot, e.Data
	case string(conversation.EventGitState):
		return TypeGitState, e.Data
	case string(conversation.EventReviewRequested):
		return typeReviewRequested, e.Data
	case string(conversation.EventReviewResult):
		return typeReviewResult, e.Data
	case string(conversation.EventPullRequest):
		var d conversation.PullRequest
		if json.Unmarshal(e.Data, &d) != nil {
			return "", nil
		}
		if d.Operation == conversation.PullRequestUpdate {
			return typePRUpdated, e.Data
		}
		return typePRCreated, e.Data
	case string(conversation.EventError):
		return TypeError, e.Data
	}
	return "", nil
}

// convertData converts the data of an event if it matches its type.
func convertData[T any](kind Type, e eventlog.Event, convert func(T) any) (Type, any) {
	var d T
	if json.Unmarshal(e.Data, &d) != nil {
		return "", nil
	}
	return kind, convert(d)
}

// workOf converts a queue event. Events of earlier releases have no counts: their items are the
// whole queue.
func workOf(d event.QueueData) Work {
	w := Work{RunnerBusy: d.Processing > 0, PromptsQueued: d.Queued}
	if len(d.Changes) == 0 {
		for _, i := range d.Items {
			w.RunnerBusy = w.RunnerBusy || i.Status == session.PromptProcessing
			if i.Status == session.PromptQueued {
				w.PromptsQueued++
			}
		}
	}
	return w
}
