package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/overwinter-dev/overwinter/client"
	"github.com/overwinter-dev/overwinter/internal/event"
	"github.com/overwinter-dev/overwinter/internal/terminal"
)

// open adds an open question and reports whether it is new.
func (t *console) open(q client.Question) bool {
	same := func(other client.Question) bool { return other.ID == q.ID }
	if t.closed[q.ID] || slices.ContainsFunc(t.asked, same) || t.dialog != nil && same(t.dialog.Question()) {
		return false
	}
	t.asked = append(t.asked, q)
	slices.SortFunc(t.asked, func(a, b client.Question) int { return cmp.Compare(a.ID, b.ID) }) // IDs sort by time
	return true
}

// resolved removes a question that is no longer open.
func (t *console) resolved(id string) {
	t.closed[id] = true
	same := func(q client.Question) bool { return q.ID == id }
	t.asked, t.aside = slices.DeleteFunc(t.asked, same), slices.DeleteFunc(t.aside, same)
	if t.dialog != nil && t.dialog.Question().ID == id {
		t.dialog = nil
	}
}

// openQuestions shows the questions that were asked before the position at which the console began.
func (t *console) openQuestions(ctx context.Context) func() error {
	questions, err := t.client.QuestionList(ctx, t.id, client.QuestionOpen)
	return func() error {
		t.live = true
		if err != nil {
			return t.view.Notice("could not read the agent's earlier questions: " + err.Error())
		}
		for _, q := range slices.Backward(questions.Items) { // the list has the newest first
			if !t.open(q) {
				continue
			}
			if err := t.showQuestion(q); err != nil {
				return err
			}
		}
		return nil
	}
}

// showQuestion shows a question as its event would be shown.
func (t *console) showQuestion(q client.Question) error {
	data, err := json.Marshal(client.QuestionData{Question: q})
	if err != nil {
		return fmt.Errorf("encode question: %w", err)
	}
	return t.view.Event(event.JSON{Type: client.EventQuestion, Data: data})
}

// ask begins a dialog about the oldest open question, and shows the input line.
func (t *console) ask() error {
	if t.dialog == nil && t.lines != nil && t.live && len(t.asked) > 0 {
		t.dialog = terminal.NewDialog(t.asked[0])
		t.asked = t.asked[1:]
	}
	if !t.tty {
		return nil
	}
	if t.dialog != nil {
		return t.view.Prompt(t.dialog.Prompt())
	}
	if t.live {
		return t.view.Prompt(t.prompt)
	}
	return nil
}

// reply continues the dialog with a line.
func (t *console) reply(line string) error {
	done, hint := t.dialog.Line(line)
	if hint != "" {
		return t.view.Notice(hint)
	}
	if !done {
		return nil
	}
	q, answer := t.dialog.Question(), t.dialog.Answer()
	t.dialog = nil
	t.calls = append(t.calls, func(ctx context.Context) func() error {
		_, err := t.client.QuestionAnswer(ctx, t.id, q.ID, answer)
		return func() error { return t.answered(q, err) }
	})
	return nil
}

// answered shows the reason why an answer was refused, and asks the question again if it can still
// be answered.
func (t *console) answered(q client.Question, err error) error {
	problem, refused := errors.AsType[*client.Error](err)
	switch {
	case err == nil:
		return nil
	case refused && slices.Contains(tooLate, problem.Code):
		return t.view.Notice("the answer came too late: " + problem.Detail)
	}
	t.asked = append([]client.Question{q}, t.asked...)
	return t.view.Notice("the answer was not accepted: " + err.Error())
}

// tooLate are the error codes for questions that are no longer open; earlier servers return
// illegal_state.
var tooLate = []client.Code{client.CodeAnswered, client.CodeExpired, client.CodeCancelled, client.CodeTerminated, client.CodeIllegalState}
