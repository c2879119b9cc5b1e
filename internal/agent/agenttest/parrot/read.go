package parrot

import (
	"time"

	"github.com/overwinter-dev/overwinter/internal/agent/ledger"
	"github.com/overwinter-dev/overwinter/internal/conversation"
)

// record is a line that the agent prints and writes to its transcript. All records of a turn have
// the time of its prompt.
type record struct {
	Run     string    `json:"run"`
	At      time.Time `json:"at"`
	Prompt  *prompt   `json:"prompt,omitempty"`
	Piece   string    `json:"piece,omitempty"`
	Answer  string    `json:"answer,omitempty"` // with Done
	Words   int64     `json:"words,omitempty"`  // of the answer
	Done    bool      `json:"done,omitempty"`
	Aborted bool      `json:"aborted,omitempty"`
}

type prompt struct {
	ID      string `json:"id"`
	Author  string `json:"author"`
	Content string `json:"content"`
	Note    string `json:"note,omitempty"`
}

// reader turns records into events, for the translator and the parser. It is also the translator's
// state, so the text that it keeps is limited to the size of a state.
type reader struct {
	ledger.Ledger[*ledger.Entry]
}

// read reads a record.
func (r *reader) read(l record, at time.Time) []conversation.Event {
	b := conversation.Block{ID: l.Run + "/answer", Type: conversation.AssistantText, CreatedAt: l.At}
	switch {
	case l.Prompt != nil:
		return ledger.Whole(conversation.Main, conversation.Block{
			ID: l.Run + "/prompt", Type: conversation.UserMessage, Status: conversation.Complete, CreatedAt: l.At,
			Content: l.Prompt.Content, PromptID: l.Prompt.ID, Author: l.Prompt.Author,
		}, at)
	case l.Piece != "":
		var events []conversation.Event
		o := r.Find(b.ID)
		if o == nil {
			b.Status = conversation.Streaming
			o = &ledger.Entry{Block: b}
			events = r.Start(o, at)
		}
		if len(o.Text)+len(l.Piece) <= ledger.MaxKept {
			o.Text = conversation.AppendText(o.Text, l.Piece)
		}
		return append(events, o.Delta(l.Piece, at))
	case l.Done && l.Answer != "":
		b.Status, b.Content = conversation.Complete, l.Answer
		if l.Aborted {
			b.Status = conversation.Aborted
		}
		return r.Show(conversation.Main, b, at)
	}
	return nil
}
