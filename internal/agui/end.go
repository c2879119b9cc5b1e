package agui

import (
	"cmp"
	"encoding/json"
	"time"

	"github.com/overwinter-dev/overwinter/internal/question"
	"github.com/overwinter-dev/overwinter/internal/resource"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// Finish ends the run of a prompt that has an outcome, or of no prompt.
func (e *Encoder) Finish(p resource.PromptJSON) []Event {
	e.out, e.at = nil, 0
	e.prompt = p
	if p.Usage != nil {
		e.usage = &TokenUsage{Model: p.Model, InputTokens: p.Usage.InputTokens, OutputTokens: p.Usage.OutputTokens}
	}
	e.finish()
	return e.out
}

// Interrupt ends the run with open questions, at least one.
func (e *Encoder) Interrupt(questions []resource.QuestionJSON) []Event {
	e.out, e.at = nil, 0
	outcome := &Outcome{Type: "interrupt"}
	suspended := &Outcome{Type: "suspended"}
	for _, q := range questions {
		i := Interrupt{
			ID: q.ID, Reason: string(q.Kind), Message: q.Title, ResponseSchema: answerSchema(q),
			ExpiresAt: time.Time(q.ExpiresAt).UTC().Format(time.RFC3339Nano), Metadata: encode(map[string]any{"question": q}),
		}
		if q.Kind == question.Permission {
			i.ToolCallID = q.ToolUseID
		}
		outcome.Interrupts = append(outcome.Interrupts, i)
		suspended.InterruptIDs = append(suspended.InterruptIDs, q.ID)
	}
	e.closeAll(suspended)
	e.end(Event{Type: "RUN_FINISHED", ThreadID: e.threadID, RunID: e.runID, Outcome: outcome})
	return e.out
}

func (e *Encoder) finish() {
	e.closeAll(nil)
	p := e.prompt
	done := Event{Type: "RUN_FINISHED", ThreadID: e.threadID, RunID: e.runID, Outcome: &Outcome{Type: "success"}}
	switch p.Status {
	case session.PromptFailed:
		done = Event{Type: "RUN_ERROR", Code: string(p.Status), Message: "the turn failed: " + cmp.Or(p.Reason, "the agent gave no reason")}
	case session.PromptUnknown:
		done = Event{Type: "RUN_ERROR", Code: string(p.Status), Message: "the outcome of the turn is unknown: " + cmp.Or(p.Reason, "no reason is recorded")}
	case session.PromptCancelled:
		done.Outcome.Type = "cancelled"
	case session.PromptQueued, session.PromptProcessing, session.PromptCompleted:
	}
	if e.usage != nil {
		done.Usage = []TokenUsage{*e.usage}
	}
	e.end(done)
}

func (e *Encoder) end(last Event) {
	e.complete = true
	e.emit(last)
}

// answerSchema describes the payload of the answer to a question.
func answerSchema(q resource.QuestionJSON) json.RawMessage {
	if q.Kind == question.Permission {
		return json.RawMessage(`{"type":"object","required":["answer"],"additionalProperties":false,"properties":{` +
			`"answer":{"type":"string","enum":["once","session","always","reject"]},` +
			`"message":{"type":"string","description":"for the agent, with a rejection"}}}`)
	}
	return json.RawMessage(`{"type":"object","additionalProperties":false,"properties":{` +
		`"answer":{"type":"string","enum":["once","reject"]},` +
		`"answers":{"type":"object","description":"the answer to each question, by its text"},` +
		`"message":{"type":"string","description":"for the agent, with a rejection"}}}`)
}
