package event

import (
	"cmp"
	"encoding/json"
	"slices"

	"github.com/overwinter-dev/overwinter/internal/deadline"
	"github.com/overwinter-dev/overwinter/internal/eventlog"
	"github.com/overwinter-dev/overwinter/internal/question"
	"github.com/overwinter-dev/overwinter/internal/resource"
	"github.com/overwinter-dev/overwinter/internal/session"
	"github.com/overwinter-dev/overwinter/internal/workspacefile"
)

// The types of the events that overwinter writes itself; those of an agent are in package conversation.
const (
	TypeStatus    = "status"
	TypePrompt    = "prompt"
	TypeQueue     = "queue"
	TypeTurnStart = "turn_start"
	TypeTurnEnd   = "turn_end"

	TypeQuestion         = "question"
	TypeQuestionResolved = "question_resolved"

	TypeFile  = "file"
	TypeSetup = "setup"

	TypeNetwork = "network"
	// TypeDeadline announces what the session will do soon.
	TypeDeadline = "deadline"
	// TypeCommand reports a command that was accepted, changed or ended.
	TypeCommand = "command"
)

// JSON is the JSON form of an event in streams.
type JSON struct {
	Seq            int64           `json:"seq"`
	Type           string          `json:"type"`
	SessionID      string          `json:"sessionId"`
	ConversationID string          `json:"conversationId,omitempty"`
	RunID          string          `json:"runId,omitempty"`
	At             resource.Time   `json:"at"`
	Data           json.RawMessage `json:"data"`
}

// FromLog converts e.
func FromLog(e eventlog.Event) JSON {
	return JSON{
		Seq: e.Seq, Type: e.Type, SessionID: e.SessionID, ConversationID: e.ConversationID,
		RunID: e.RunID, At: resource.Time(e.At), Data: e.Data,
	}
}

// StatusData is the data of a status event.
type StatusData struct {
	Status     session.State         `json:"status"`
	Reason     string                `json:"reason"`
	Transition int64                 `json:"transition"` // its number in the session's life
	Sandbox    *resource.SandboxJSON `json:"sandbox"`
	Receipt    *resource.ReceiptJSON `json:"receipt,omitempty"`
}

// SetupStarted is the status of a stage that has started.
const SetupStarted = "started"

// SetupData is the data of a setup event: a stage of a workspace has started or is complete.
// Another attempt may start a stage again.
type SetupData struct {
	Stage  string `json:"stage"`  // image, clone, setup
	Status string `json:"status"` // started, completed, failed
}

// DeadlineData is the data of a deadline event: what the session does at a time, unless something
// happens first.
type DeadlineData struct {
	Kind deadline.Kind `json:"kind"`
	At   resource.Time `json:"at"`
}

// NetworkData is the data of a network event: connections to one destination that the
// network of the sandbox refused.
type NetworkData struct {
	Host     string `json:"host,omitempty"` // the name that the sandbox resolved
	IP       string `json:"ip"`             // empty if there were too many destinations to report each
	Port     uint16 `json:"port"`
	Protocol string `json:"protocol"` // tcp, udp
	Verdict  string `json:"verdict"`  // refused, limited
	Count    int    `json:"count"`
}

// PromptData is the data of a prompt event. The first event of a prompt has its content, as does
// each event that replaces it; other events do not.
type PromptData struct {
	Prompt PromptChange `json:"prompt"`
}

// PromptChange is a prompt in an event.
type PromptChange struct {
	resource.PromptJSON
	Content string `json:"content,omitempty"` // replaces the prompt's field, which is always present
}

// Whole returns the prompt as far as the event contains it.
func (c PromptChange) Whole() resource.PromptJSON {
	p := c.PromptJSON
	p.Content = c.Content
	return p
}

// PromptSubmitted is the data of the first event of a prompt, and of one whose content was replaced.
func PromptSubmitted(p session.Prompt) PromptData {
	return PromptData{Prompt: PromptChange{PromptJSON: resource.Prompt(p), Content: p.Content}}
}

// PromptChanged is the data of an event of a prompt after its first.
func PromptChanged(p session.Prompt) PromptData {
	p.Attachments, p.Claims = nil, 0
	return PromptData{Prompt: PromptChange{PromptJSON: resource.Prompt(p)}}
}

// MaxQueueItems bounds the items of a queue event.
const MaxQueueItems = 20

// QueueData is the data of a queue event: the changes and the head of the queue. Applying the
// changes of all events in order, sorted by rank and ordinal, gives the whole queue. Without
// Changes, as in events of earlier versions, Items are the whole queue.
type QueueData struct {
	Changes []QueueChange `json:"changes,omitempty"`
	// Items are the first unfinished prompts, at most MaxQueueItems, in order.
	Items      []QueueItem `json:"items"`
	Queued     int64       `json:"queued"`
	Processing int64       `json:"processing"`
	resource.HoldJSON
}

// QueueChange is one prompt that joined the queue, changed in it or left it.
type QueueChange struct {
	Change QueueChangeKind `json:"change"`
	QueueItem
}

// QueueChangeKind is the kind of a change of the queue.
type QueueChangeKind string

// A prompt is added when it is submitted or returns to the queue, updated while it stays in it, and
// removed when it has ended.
const (
	QueueAdded   QueueChangeKind = "added"
	QueueUpdated QueueChangeKind = "updated"
	QueueRemoved QueueChangeKind = "removed"
)

// Queue is the queue of a session, computed from its events. The zero value is empty.
type Queue struct {
	items []QueueItem // in order
}

// Apply applies the data of the next queue event.
func (q *Queue) Apply(d QueueData) {
	if len(d.Changes) == 0 { // of an earlier version, or a hold of an empty queue
		q.items = slices.Clone(d.Items)
		return
	}
	for _, c := range d.Changes {
		q.items = slices.DeleteFunc(q.items, func(i QueueItem) bool { return i.PromptID == c.PromptID })
		if c.Change == QueueRemoved {
			continue
		}
		at := slices.IndexFunc(q.items, c.before)
		if at < 0 {
			at = len(q.items)
		}
		q.items = slices.Insert(q.items, at, c.QueueItem)
	}
	// A reader that started late gets the head of the queue here.
	if d.Queued+d.Processing == int64(len(d.Items)) {
		q.items = slices.Clone(d.Items)
	}
}

// Items returns the unfinished prompts, in order, according to the events so far.
func (q *Queue) Items() []QueueItem { return slices.Clone(q.items) }

// before reports whether i precedes another item: processed prompts first, then the others by rank
// and ordinal.
func (i QueueItem) before(other QueueItem) bool {
	waits := func(i QueueItem) int {
		if i.Status == session.PromptQueued {
			return 1
		}
		return 0
	}
	return cmp.Or(waits(i)-waits(other), cmp.Compare(i.Rank, other.Rank), cmp.Compare(i.Ordinal, other.Ordinal)) < 0
}

// QueueItem is one prompt in a session's queue.
type QueueItem struct {
	PromptID string               `json:"promptId"`
	Ordinal  int64                `json:"ordinal"`
	Rank     int64                `json:"rank,omitempty"`
	Status   session.PromptStatus `json:"status"`
}

// TurnStartData is the data of a turn_start event. Attempt is above 1 if another worker continues
// the same run.
type TurnStartData struct {
	RunID    string `json:"runId"`
	PromptID string `json:"promptId"`
	Attempt  int64  `json:"attempt"`
}

// TurnEndData is the data of a turn_end event.
type TurnEndData struct {
	RunID    string          `json:"runId"`
	PromptID string          `json:"promptId"`
	Outcome  session.Outcome `json:"outcome"`
	Reason   string          `json:"reason,omitempty"`
	// Usage and Model of the run; nil and empty in events of earlier releases.
	Usage *resource.UsageJSON `json:"usage,omitempty"`
	Model string              `json:"model,omitempty"`
}

// FileData is the data of a file event. Size is 0 for a deleted file.
type FileData struct {
	Path   string                   `json:"path"` // relative to the workspace
	Change workspacefile.ChangeKind `json:"change"`
	Size   int64                    `json:"size"`
}

// CommandData is the data of a command event.
type CommandData struct {
	Command resource.CommandJSON `json:"command"`
}

// QuestionData is the data of a question event.
type QuestionData struct {
	Question resource.QuestionJSON `json:"question"`
}

// QuestionResolvedData is the data of a question_resolved event: the answer, or the reason why
// there is none.
type QuestionResolvedData struct {
	QuestionID string                    `json:"questionId"`
	Answer     question.Decision         `json:"answer,omitempty"`
	Answers    map[string]question.Words `json:"answers,omitempty"`
	Message    string                    `json:"message,omitempty"`
	AnsweredBy string                    `json:"answeredBy,omitempty"`
	Reason     string                    `json:"reason,omitempty"`
}

// QuestionResolved returns the event data for the end of q.
func QuestionResolved(q question.Question) QuestionResolvedData {
	out := QuestionResolvedData{QuestionID: q.ID, Reason: q.Reason}
	if q.Answer != nil {
		out.Answer, out.Answers, out.Message, out.AnsweredBy = q.Answer.Decision, q.Answer.Answers, q.Answer.Message, q.Answer.By
	}
	return out
}
