package gemini

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/overwinter-dev/overwinter/internal/agent/gemini/geminiformat"
	"github.com/overwinter-dev/overwinter/internal/agent/ledger"
	"github.com/overwinter-dev/overwinter/internal/agent/stdio"
	"github.com/overwinter-dev/overwinter/internal/agent/translate"
	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/lazyregexp"
	"github.com/overwinter-dev/overwinter/internal/usage"
)

// reminderTag begins a message that the program sends to itself as the user.
const reminderTag = "System: "

// delegating is the title of a call of subagentTool.
var delegating = lazyregexp.New(`^Delegating to agent '(.+)'$`)

// reader turns the bridge's notes and chat files into blocks. The translator and the parser share
// it, so that both create the same blocks.
type reader struct {
	ledger.Ledger[*openBlock]
	// Run is the run of the turn, if the bridge has reported it. Responses counts the model's
	// messages in it, because text has no id while it streams.
	Run       string `json:"run,omitempty"`
	Responses int    `json:"responses,omitempty"`
	// Prompted is set until the agent's own record of the prompt arrives.
	Prompted    bool   `json:"prompted,omitempty"`
	Interrupted bool   `json:"interrupted,omitempty"`
	Said        string `json:"said,omitempty"` // of noteText
	// Last is the newest record of each conversation. A record is repeated when it changes.
	Last map[string]string `json:"last,omitempty"`

	Usage usage.Usage `json:"usage,omitzero"`
	Model string      `json:"model,omitempty"`

	// seen contains the ids of records and calls if the whole past is read. The bridge reports each
	// once.
	seen map[string]struct{}
	// pictured is called with the images of results; nil if their bytes are not needed.
	pictured func([]conversation.ImageData)
}

// apply applies a line of the bridge. At the end of a turn it only closes the open blocks; the
// caller ends the turn.
func (r *reader) apply(n stdio.Note, at time.Time) []conversation.Event {
	switch n.Type {
	case geminiformat.NotePrompt:
		return r.prompt(n, at)
	case geminiformat.NoteChat:
		var rec geminiformat.Record
		if !geminiformat.Decode(n.Data, &rec) {
			return nil
		}
		return r.record(where(n.ID), rec, at)
	case geminiformat.NoteText:
		_ = json.Unmarshal(n.Data, &r.Said) // an empty note otherwise
	case geminiformat.NoteTool:
		var d geminiformat.ToolNote
		if !geminiformat.Decode(n.Data, &d) || n.ID == "" || r.Find(n.ID) != nil {
			return nil
		}
		return r.began(n.ID, d, stamped(d.At, at), at)
	case geminiformat.NoteAnswered:
		if o := r.Find(n.ID); o != nil && geminiformat.IsTrue(n.Data) && o.Block.Status == conversation.Pending {
			return r.running(o, at)
		}
	case geminiformat.NoteSubagent:
		var d geminiformat.SubagentNote
		if o := r.called(n, &d); o != nil && n.ID != "" {
			o.Block.SubagentID = n.ID
			return []conversation.Event{o.Updated(conversation.Updates{SubagentID: n.ID}, at)}
		}
	case geminiformat.NoteInterrupt:
		r.Interrupted = true
	case geminiformat.NotePartial:
		var d geminiformat.PartialNote
		if geminiformat.Decode(n.Data, &d) {
			return r.partial(d, stamped(d.At, at), at)
		}
	case geminiformat.NoteHistory:
		return r.compacted(n, at)
	case geminiformat.NoteLost:
		return r.system("memory_lost", n, at)
	case stdio.NoteFailed, stdio.NoteDeadline:
		return r.system("error", n, at)
	case geminiformat.NoteEnd:
		return r.Cut(at)
	}
	return nil
}

// called returns the open call of a subagent that has begun.
func (r *reader) called(n stdio.Note, d *geminiformat.SubagentNote) *openBlock {
	if !geminiformat.Decode(n.Data, d) {
		return nil
	}
	o := r.Find(d.ToolUseID)
	if o == nil || o.Block.Type != conversation.Subagent {
		return nil
	}
	return o
}

// prompt begins a turn. Blocks left open by an earlier turn were aborted with its process.
func (r *reader) prompt(n stdio.Note, at time.Time) []conversation.Event {
	var d geminiformat.PromptNote
	if !geminiformat.Decode(n.Data, &d) || n.RunID == "" {
		return nil
	}
	events := r.Cut(at)
	r.Run, r.Responses, r.Prompted, r.Interrupted, r.Said = n.RunID, 0, true, false, ""
	return append(events, ledger.Whole(conversation.Main, conversation.Block{
		ID: n.RunID + "/prompt", Type: conversation.UserMessage, Status: conversation.Complete, CreatedAt: stamped(d.At, at),
		Content: d.Content, PromptID: d.PromptID, Author: d.Author,
	}, at)...)
}

// system shows an error.
func (r *reader) system(subtype string, n stdio.Note, at time.Time) []conversation.Event {
	var d geminiformat.Stamp
	geminiformat.Decode(n.Data, &d)
	created := stamped(d.At, at)
	id := fmt.Sprintf("%s/%s/%d", subtype, r.Run, created.UnixMilli())
	return r.Show(conversation.Main, conversation.Block{
		ID: id, Type: conversation.System, Status: conversation.Complete, CreatedAt: created,
		Subtype: subtype, Message: geminiformat.Bounded(n.Message),
	}, at)
}

// compacted shows that the agent has replaced its memory by a summary.
func (r *reader) compacted(n stdio.Note, at time.Time) []conversation.Event {
	var d geminiformat.HistoryNote
	if !geminiformat.Decode(n.Data, &d) || len(d.Added) == 0 {
		return nil
	}
	var rec geminiformat.Record
	if !geminiformat.Decode(d.Added[0], &rec) || rec.ID == "" {
		return nil
	}
	return r.Show(conversation.Main, conversation.Block{
		ID: rec.ID, Type: conversation.System, Status: conversation.Complete, CreatedAt: stamped(d.At, at),
		Subtype: "compaction", Message: geminiformat.Bounded(geminiformat.Words(rec.Content)),
	}, at)
}

// record reads a message of a chat file.
func (r *reader) record(conv string, rec geminiformat.Record, at time.Time) []conversation.Event {
	at = geminiformat.Time(rec.Timestamp, at)
	switch rec.Type {
	case geminiformat.UserRecord:
		return r.user(conv, rec, at)
	case geminiformat.GeminiRecord:
		return r.gemini(conv, rec, at)
	case errorRecord, warningRecord:
		return r.notice(conv, rec, at)
	}
	return nil
}

// notice reads a message that the program has shown in its terminal.
func (r *reader) notice(conv string, rec geminiformat.Record, at time.Time) []conversation.Event {
	text := geminiformat.Words(rec.Content)
	if text == "" || rec.ID == "" || !r.once("record/"+conv+"/"+rec.ID) {
		return nil
	}
	return ledger.Whole(conv, conversation.Block{
		ID: rec.ID, Type: conversation.System, Status: conversation.Complete, CreatedAt: at,
		Subtype: rec.Type, Message: geminiformat.Bounded(text),
	}, at)
}

// user reads a message that the model received from a person, or from tools whose calls the agent
// has not stored: the agent omits rejected calls and calls of unknown tools.
func (r *reader) user(conv string, rec geminiformat.Record, at time.Time) []conversation.Event {
	if responses := rec.Responses(); len(responses) > 0 {
		var events, results []conversation.Event
		for _, p := range responses {
			status := "success"
			if _, isError := p.Output(); isError {
				status = "error"
			}
			use, result := r.ended(conv, geminiformat.ToolCall{
				ID: p.ID, Name: p.Name, Status: status,
				Result: geminiformat.Data([]map[string]geminiformat.Response{{"functionResponse": p}}),
			}, at)
			events, results = append(events, use...), append(results, result...)
		}
		return append(events, results...)
	}
	text := rec.Text()
	switch {
	case text == "", rec.ID == "":
		return nil
	case conv == conversation.Main && r.Prompted:
		r.Prompted = false
		return nil
	case !r.once("record/" + conv + "/" + rec.ID):
		return nil
	case conv == conversation.Main && r.Run != "", strings.HasPrefix(text, reminderTag):
		// Sent by the program in the user's name: that it is in a loop, or should continue.
		return ledger.Whole(conv, conversation.Block{
			ID: rec.ID, Type: conversation.System, Status: conversation.Complete, CreatedAt: at,
			Subtype: "reminder", Message: geminiformat.Bounded(text),
		}, at)
	}
	return ledger.Whole(conv, conversation.Block{
		ID: rec.ID, Type: conversation.UserMessage, Status: conversation.Complete, CreatedAt: at, Content: text,
	}, at)
}

// gemini reads an answer of the model and the calls that have ended since.
func (r *reader) gemini(conv string, rec geminiformat.Record, at time.Time) []conversation.Event {
	if rec.ID == "" {
		return nil
	}
	var events []conversation.Event
	if r.Last == nil {
		r.Last = map[string]string{}
	}
	if r.Last[conv] != rec.ID && r.once("record/"+conv+"/"+rec.ID) {
		r.Last[conv] = rec.ID
		events = append(events, r.response(conv, rec, at)...)
	}
	var results []conversation.Event
	for _, c := range rec.ToolCalls {
		if c.Ended() {
			use, result := r.ended(conv, c, at)
			events, results = append(events, use...), append(results, result...)
		}
	}
	return append(events, results...)
}

// response shows an answer of the model.
func (r *reader) response(conv string, rec geminiformat.Record, at time.Time) []conversation.Event {
	var events []conversation.Event
	if rec.Model != "" {
		r.Model = rec.Model
	}
	if t := rec.Tokens; t != nil {
		r.Usage.CostUnknown = true // the agent reports only tokens
		r.Usage.InputTokens += t.Input
		r.Usage.OutputTokens += t.Output + t.Thoughts
		events = append(events, translate.Usage(r.Usage, r.Model, at))
	}
	content := geminiformat.Words(rec.Content)
	if r.Said != "" && conv == conversation.Main {
		content, r.Said = r.Said, ""
	}
	if strings.TrimFunc(content, geminiformat.IsSpace) == "" {
		content = ""
	}
	if content == "" && len(rec.Thoughts) == 0 {
		return events
	}
	id := r.next(conv, rec.ID)
	for i, t := range rec.Thoughts {
		events = append(events, r.Show(conv, conversation.Block{
			ID: thinkingID(id, i), Type: conversation.Thinking, Status: conversation.Complete,
			CreatedAt: geminiformat.Time(t.Timestamp, at), Content: t.Text(),
		}, at)...)
	}
	if content != "" {
		events = append(events, r.Show(conv, conversation.Block{
			ID: textID(id), Type: conversation.AssistantText, Status: conversation.Complete, CreatedAt: at, Content: content,
		}, at)...)
	}
	return events
}

// partial closes the text that the agent has printed and not stored.
func (r *reader) partial(d geminiformat.PartialNote, created, at time.Time) []conversation.Event {
	id := r.next(conversation.Main, "")
	status := conversation.Aborted
	if d.Complete {
		status = conversation.Complete
	}
	var events []conversation.Event
	for i, t := range d.Thoughts {
		events = append(events, r.Show(conversation.Main, conversation.Block{
			ID: thinkingID(id, i), Type: conversation.Thinking, Status: status, CreatedAt: created, Content: t,
		}, at)...)
	}
	if d.Text != "" {
		events = append(events, r.Show(conversation.Main, conversation.Block{
			ID: textID(id), Type: conversation.AssistantText, Status: status, CreatedAt: created, Content: d.Text,
		}, at)...)
	}
	return events
}

// current returns the id of the answer in progress.
func (r *reader) current() string { return fmt.Sprintf("%s/%d", r.Run, r.Responses) }

// next returns the id of a complete answer: that of its record, except for the main model in a
// streamed turn.
func (r *reader) next(conv, record string) string {
	if conv != conversation.Main || r.Run == "" {
		return record
	}
	id := r.current()
	r.Responses++
	return id
}

func textID(response string) string            { return response + "/text" }
func thinkingID(response string, i int) string { return fmt.Sprintf("%s/thinking/%d", response, i) }
func resultID(call string) string              { return call + "/result" }

// began shows a call that has begun.
func (r *reader) began(id string, d geminiformat.ToolNote, created, at time.Time) []conversation.Event {
	b := conversation.Block{
		ID: id, Type: conversation.ToolUse, Status: conversation.Pending, CreatedAt: created, Name: d.Name, ToolUseID: id,
	}
	if d.Name == geminiformat.SubagentTool {
		b.Type, b.ToolUseID = conversation.Subagent, ""
		if m := delegating.FindStringSubmatch(d.Title); m != nil {
			b.Name = m[1]
		}
	}
	if d.Title != "" {
		// The arguments are stored when the call ends.
		b.Input = geminiformat.Data(map[string]string{"title": d.Title})
	}
	o := &openBlock{Entry: ledger.Entry{Conversation: conversation.Main, Block: b}}
	events := r.Start(o, at)
	if !d.Asked {
		events = append(events, r.running(o, at)...)
	}
	return events
}

func (r *reader) running(o *openBlock, at time.Time) []conversation.Event {
	o.Block.Status = conversation.Running
	return []conversation.Event{o.Updated(conversation.Updates{Status: conversation.Running}, at)}
}

// ended shows the end of a call and its result, which follows all calls made in the same answer.
func (r *reader) ended(conv string, c geminiformat.ToolCall, at time.Time) (use, result []conversation.Event) {
	if c.ID == "" || !r.once("call/"+c.ID) {
		return nil, nil
	}
	at = geminiformat.Time(c.Timestamp, at)
	output, isError := c.Output()
	block := conversation.Block{
		ID: c.ID, Type: conversation.ToolUse, Status: conversation.Success, CreatedAt: at,
		Name: c.Name, Input: c.Args, ToolUseID: c.ID,
	}
	if block.Name == "" {
		block.Name = geminiformat.ToolName(c.ID)
	}
	switch {
	case c.Status == "cancelled", r.Interrupted:
		block.Status = conversation.Aborted
	case c.Status == "error", isError:
		block.Status = conversation.Failed
	}
	if c.Name == geminiformat.SubagentTool {
		var args struct {
			AgentName string `json:"agent_name"`
		}
		geminiformat.Decode(c.Args, &args)
		block.Type, block.Name, block.ToolUseID, block.SubagentID = conversation.Subagent, args.AgentName, "", c.AgentID
	}
	if o := r.Find(c.ID); o != nil {
		block.CreatedAt = o.Block.CreatedAt
		if block.SubagentID == "" {
			block.SubagentID = o.Block.SubagentID
		}
		if block.Type == conversation.Subagent && block.Name == "" {
			block.Name = o.Block.Name
		}
		if len(block.Input) == 0 {
			block.Input = o.Block.Input
		}
	}
	r.Usage.ToolCalls++
	images := c.Images()
	if r.pictured != nil {
		r.pictured(images)
	}
	return r.Show(conv, block, at), ledger.Whole(conv, conversation.Block{
		ID: resultID(c.ID), Type: conversation.ToolResult, Status: block.Status, CreatedAt: at,
		ToolUseID: c.ID, Output: output, IsError: block.Status == conversation.Failed,
		Images: conversation.References(images),
	}, at)
}

// says shows a piece of the model's answer. It holds white space at both ends until more text
// follows.
func (r *reader) says(id, piece string, at time.Time) []conversation.Event {
	o := r.Find(id)
	if o == nil {
		if piece = strings.TrimLeftFunc(piece, geminiformat.IsSpace); piece == "" {
			return nil
		}
		o = &openBlock{Entry: ledger.Entry{Conversation: conversation.Main, Block: conversation.Block{
			ID: id, Type: conversation.AssistantText, Status: conversation.Streaming, CreatedAt: at,
		}}}
		return append(r.Start(o, at), r.more(o, piece, at)...)
	}
	return r.more(o, piece, at)
}

func (r *reader) more(o *openBlock, piece string, at time.Time) []conversation.Event {
	piece = o.Space + piece
	text := strings.TrimRightFunc(piece, geminiformat.IsSpace)
	o.Space = piece[len(text):]
	if text == "" {
		return nil
	}
	if !o.Cut {
		o.Text = conversation.AppendText(o.Text, text)
	}
	return []conversation.Event{o.Delta(text, at)}
}

// thinks shows a thought, which arrives complete. It stays open until its record is stored.
func (r *reader) thinks(response, text string, at time.Time) []conversation.Event {
	i := 0
	for r.Find(thinkingID(response, i)) != nil {
		i++
	}
	o := &openBlock{Entry: ledger.Entry{Conversation: conversation.Main, Text: []byte(text), Block: conversation.Block{
		ID: thinkingID(response, i), Type: conversation.Thinking, Status: conversation.Streaming, CreatedAt: at,
	}}}
	return append(r.Start(o, at), o.Delta(text, at))
}

// once reports whether an id is new. It returns true for every id if earlier ids are not recorded.
func (r *reader) once(id string) bool {
	if r.seen == nil {
		return true
	}
	if _, ok := r.seen[id]; ok {
		return false
	}
	r.seen[id] = struct{}{}
	return true
}

// where returns the conversation of a chat file.
func where(subagent string) string {
	if subagent == "" {
		return conversation.Main
	}
	return subagent
}

// stamped returns a note's own time, or else that of its frame.
func stamped(own, frame time.Time) time.Time {
	if own.IsZero() {
		return frame
	}
	return own.UTC()
}

// The types of record in a chat file that become blocks. There are others, such as info.
const (
	errorRecord   = "error"
	warningRecord = "warning"
)
