package demoagent

import (
	"slices"

	"github.com/overwinter-dev/overwinter/internal/agent/demo/demoformat"
	"github.com/overwinter-dev/overwinter/internal/question"
)

// The result of a tool that was rejected without a message, and the reason for rejecting a question
// that can no longer be answered.
const (
	notAllowed  = "The user does not allow this."
	notAnswered = "The user does not want to answer this."
	unanswered  = "This can no longer be answered: stdin has ended."
)

// ask asks a question and waits for its answer, or for an interrupt.
func (t *turn) ask(q demoformat.Line) (demoformat.Line, error) {
	q.Type, q.UUID = demoformat.LineQuestion, t.NewID()
	reply := t.inbox.expect(q.UUID)
	defer t.inbox.forget(q.UUID)
	if err := t.stream(q); err != nil {
		return demoformat.Line{}, err
	}
	var a demoformat.Line
	select {
	case a = <-reply:
	case <-t.ctx.Done():
	}
	if t.ctx.Err() != nil {
		a = demoformat.Line{}
	}
	if err := t.stream(demoformat.Line{Type: demoformat.LineAnswered, UUID: q.UUID, Decision: a.Decision}); err != nil {
		return demoformat.Line{}, err
	}
	if a.Decision == "" {
		return demoformat.Line{}, errInterrupted
	}
	return a, nil
}

// permit asks whether a call may run, if its tool requires that. If it may not, refused is the
// tool's result.
func (t *turn) permit(call demoformat.Line, title string) (refused answer, ok bool, err error) {
	if !t.mustAsk(call.Name) {
		return answer{}, true, nil
	}
	a, err := t.ask(demoformat.Line{
		Kind: string(question.Permission), Name: call.Name, ToolUseID: call.UUID, Input: call.Input, Content: title,
	})
	if err != nil {
		return answer{output: interruptedOutput}, false, err
	}
	switch a.Decision {
	case question.Reject:
		t.answer = orElse(a.Content, notAllowed)
		return answer{output: t.answer, failed: true}, false, nil
	case question.ForSession:
		t.memory.allowed[call.Name] = true
	case question.Always:
		err = t.memory.allow(call.Name)
	}
	return answer{}, true, err
}

// mustAsk reports whether a tool has to ask before it runs.
func (t *turn) mustAsk(tool string) bool {
	return slices.Contains(t.denied, tool) || slices.Contains(t.asking, tool) && !t.memory.allowed[tool]
}

// askUser asks the user a question of a script, as a tool whose result is the user's answer.
func (t *turn) askUser(s step) error {
	in := askInput{Question: s.text, Options: s.options}
	return t.call(tool{name: toolAsk, input: in, work: func(call demoformat.Line) (answer, error) {
		item := question.Item{Question: s.text}
		for _, o := range s.options {
			item.Options = append(item.Options, question.Option{Label: o})
		}
		a, err := t.ask(demoformat.Line{
			Kind: string(question.Inquiry), Name: call.Name, ToolUseID: call.UUID, Input: call.Input, Content: s.text,
			Inquiries: []question.Item{item},
		})
		switch {
		case err != nil:
			return answer{output: interruptedOutput}, err
		case a.Decision == question.Reject:
			t.answer = orElse(a.Content, notAnswered)
			return answer{output: t.answer, failed: true}, nil
		}
		t.answer = a.Answers[s.text].String()
		return answer{output: t.answer}, nil
	}})
}

func orElse(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}
