package apitest

import (
	"cmp"
	"fmt"
	"time"

	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/event"
	"github.com/overwinter-dev/overwinter/internal/resource"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// Turn writes the turn of a queued prompt as a worker would: the agent uses a tool, thinks, and
// writes each of the texts in pieces of two bytes. Then the prompt ends. If the prompt is not
// queued, the turn belongs to no prompt.
func (m *Store) Turn(id, promptID string, end session.PromptStatus, reason string, says ...string) {
	m.With(id, func(r *Row) {
		at := -1
		for i := range r.Prompts {
			if r.Prompts[i].ID == promptID && r.Prompts[i].Status == session.PromptQueued {
				at = i
			}
		}
		if at < 0 {
			return
		}
		p := &r.Prompts[at]
		runID := cmp.Or(p.AllottedRun, session.NewID(session.RunPrefix))
		write := func(kind string, data any) {
			m.Append(r, kind, data)
			e := &r.Events[len(r.Events)-1]
			e.RunID, e.ConversationID = runID, conversation.Main
		}
		move := func(to session.PromptStatus) {
			p.Status, p.RunID = to, runID
			write(event.TypePrompt, event.PromptChanged(*p))
			write(event.TypeQueue, r.queue())
		}
		complete := func(b conversation.Block, pieces ...string) {
			b.CreatedAt = time.Now()
			open := b
			open.Content, open.Status = "", conversation.Streaming
			write(string(conversation.EventBlockStart), conversation.BlockStart{Block: open})
			for _, piece := range pieces {
				write(string(conversation.EventTextDelta), conversation.TextDelta{BlockID: b.ID, Delta: piece})
			}
			write(string(conversation.EventBlockComplete), conversation.BlockComplete{Block: b})
		}

		write(event.TypeTurnStart, event.TurnStartData{RunID: runID, PromptID: p.ID, Attempt: 1})
		move(session.PromptProcessing)
		complete(conversation.Block{ID: runID + "-t", Type: conversation.Thinking, Status: conversation.Complete, Content: "hmm"}, "hmm")
		complete(conversation.Block{
			ID: runID + "-u", Type: conversation.ToolUse, Status: conversation.Success, Name: "shell",
			ToolUseID: "u", Input: []byte(`{"command":"ls"}`),
		})
		complete(conversation.Block{
			ID: runID + "-r", Type: conversation.ToolResult, Status: conversation.Success,
			ToolUseID: "u", Output: []byte(`"a.txt\nb.txt"`),
		})
		for i, text := range says {
			var pieces []string
			for rest := text; rest != ""; {
				n := min(2, len(rest))
				pieces, rest = append(pieces, rest[:n]), rest[n:]
			}
			complete(conversation.Block{
				ID: fmt.Sprintf("%s-%d", runID, i), Type: conversation.AssistantText, Status: conversation.Complete, Content: text,
			}, pieces...)
		}
		p.Reason = reason
		write(event.TypeTurnEnd, event.TurnEndData{RunID: runID, PromptID: p.ID, Outcome: session.Outcome(end), Reason: reason})
		move(end)
	})
}

// queue is the data of a queue event.
func (r *Row) queue() event.QueueData {
	data := event.QueueData{Items: []event.QueueItem{}, HoldJSON: resource.Hold(r.Session.Queue.Hold)}
	for _, p := range r.Prompts {
		item := event.QueueItem{PromptID: p.ID, Ordinal: p.Ordinal, Status: p.Status}
		change := event.QueueUpdated
		switch {
		case p.Status.Final():
			change = event.QueueRemoved
		case p.Status == session.PromptQueued:
			data.Queued++
		default:
			data.Processing++
		}
		data.Changes = append(data.Changes, event.QueueChange{Change: change, QueueItem: item})
		if change != event.QueueRemoved && len(data.Items) < event.MaxQueueItems {
			data.Items = append(data.Items, item)
		}
	}
	return data
}
