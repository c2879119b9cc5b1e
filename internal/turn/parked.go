package turn

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/eventlog"
	"github.com/overwinter-dev/overwinter/internal/question"
	"github.com/overwinter-dev/overwinter/internal/run"
)

// agentRun is the name of the run for its agent and the runner.
func (a *attempt) agentRun() string { return run.AgentID(a.in.RunID, a.start.Run.Part) }

// park parks the run if it has waited only for open questions for a while. Later output of the
// agent appears only in its transcripts.
func (a *attempt) park(ctx context.Context, link *turnLink) error {
	open := !a.waiting.expires.IsZero()
	if a.lastActive.IsZero() { // the attempt has just started
		a.lastActive = time.Now()
	}
	if a.in.ParkAfter <= 0 || !open || a.ended() != nil || min(time.Since(a.lastActive), time.Since(a.tried)) < a.in.ParkAfter {
		return nil
	}
	if err := a.commit(ctx, link, nil); err != nil { // deferred frames
		return err
	}
	parked, err := a.Store.RunPark(ctx, run.Parking{
		RunID: a.in.RunID, Token: a.token, AtWork: time.Since(a.lastActive) >= run.ParkAtWork*a.in.ParkAfter,
	})
	if err != nil {
		return Stored(err)
	}
	a.parked, a.tried = parked, time.Now()
	return nil
}

// beginPart starts the part of a run that follows an answer: it closes the blocks that the previous
// part left open, and creates a new translator.
func (a *attempt) beginPart(ctx context.Context) (err error) {
	part := a.start.Run.Part
	if part == 0 || a.ended() != nil {
		return nil
	}
	if a.answers, err = a.Store.QuestionsParked(ctx, a.in.RunID, part); err != nil {
		return Stored(err)
	}
	if a.part == part {
		return nil
	}
	frame := a.start.Run.FrameBase - 1
	drafts, err := a.drafts(a.translator.Cut(time.Now().UTC()), frame)
	if err != nil {
		return err
	}
	a.translator, err = a.adapter.NewTranslator(agent.RunContext{
		RunID: a.agentRun(), PromptID: a.start.Prompt.ID, Author: a.start.Prompt.Author,
	}, nil)
	if err != nil {
		return final(Refused, fmt.Errorf("continue run %s: %w", a.in.RunID, err))
	}
	a.part, a.given = part, nil
	state, err := a.encode(nil)
	if err != nil {
		return fmt.Errorf("state of run %s: %w", a.in.RunID, err)
	}
	err = a.Log.Append(ctx, eventlog.Append{
		SessionID: a.in.SessionID, RunID: a.in.RunID, Generation: a.in.Generation, Token: a.token,
		Events: drafts, LastFrame: frame, State: state,
	})
	if err == nil {
		a.frame = frame
	}
	return err
}

// promptInput returns the agent's input: the prompt, or in a later part of the run the outcome of
// its questions.
func (a *attempt) promptInput() agent.PromptInput {
	in := agent.PromptInput{
		RunID: a.agentRun(), PromptID: a.start.Prompt.ID, Content: withAttachments(a.start.Prompt),
		Author: a.start.Prompt.Author, At: a.start.Run.StartedAt, Note: notes(a.start),
	}
	if a.start.Run.Part > 0 {
		in.Content, in.At = continuation(a.answers), time.Now()
	}
	return in
}

// answered records that the agent has received the outcome of the questions at the start of this
// part of the run.
func (a *attempt) answered(ctx context.Context) error {
	var ids []string
	for _, q := range a.answers {
		if !q.Delivered {
			ids = append(ids, q.ID)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	return Stored(a.Store.QuestionsDelivered(ctx, a.token, ids))
}

// givenAnswer returns the stored answer to a question that the agent asks again because it repeats
// the work that the hibernation of its session interrupted. Each answer is used once.
func (a *attempt) givenAnswer(q agent.Question) *agent.Answer {
	for _, before := range a.answers {
		same := before.Asked.Kind == q.Kind && before.Asked.ToolName == q.ToolName &&
			sameJSON(before.Asked.Input, q.Input) && reflect.DeepEqual(before.Asked.Inquiries, q.Inquiries)
		if same && !slices.Contains(a.given, before.ID) {
			a.given = append(a.given, before.ID)
			return new(answerOf(before))
		}
	}
	return nil
}

func sameJSON(a, b json.RawMessage) bool {
	var x, y any
	if len(a) == 0 || len(b) == 0 {
		return len(a) == len(b)
	}
	return json.Unmarshal(a, &x) == nil && json.Unmarshal(b, &y) == nil && reflect.DeepEqual(x, y)
}

// answerOf returns the agent's form of the answer to a question that is no longer open.
func answerOf(q question.Question) question.Answer {
	if q.Answer != nil {
		return *q.Answer
	}
	return question.Answer{Decision: question.Reject, Message: answerTimedOut}
}

// continuation describes the outcome of its questions to an agent that was stopped. The result is
// text, because no agent waits for an answer across a restart.
func continuation(questions []question.Question) string {
	var b strings.Builder
	b.WriteString("You were paused while you waited for people, and have been resumed. Calls that were waiting have not run. " +
		"Other running calls and subagents were stopped and have no result.\n")
	for _, q := range questions {
		b.WriteString("\n" + outcomeOf(q) + "\n")
	}
	b.WriteString("\nContinue with what you were doing.")
	return b.String()
}

func outcomeOf(q question.Question) string {
	answer := answerOf(q)
	subject := "You asked: " + strings.TrimRight(q.Asked.Title, ".")
	if q.Asked.Kind == question.Permission {
		subject = fmt.Sprintf("You asked for permission to use %s", q.Asked.ToolName)
		if input := string(q.Asked.Input); input != "" && len(input) <= maxQuotedInput {
			subject += " with " + input
		}
	}
	if !strings.HasSuffix(subject, "?") {
		subject += "."
	}
	subject += " "
	switch {
	case q.Answer == nil:
		return subject + answerTimedOut + " Do not do it; find another way or end your turn."
	case answer.Decision == question.Reject:
		return strings.TrimSpace(subject + "It was rejected. " + answer.Message)
	case q.Asked.Kind == question.Permission:
		return subject + "It was allowed. Make the call again."
	}
	var answers []string
	for _, item := range q.Asked.Inquiries {
		answers = append(answers, fmt.Sprintf("The answer to %q is: %s", item.Question, answer.Answers[item.Question].String()))
	}
	return subject + strings.Join(answers, ". ")
}

// maxQuotedInput bounds the quoted input of a call. The agent has the whole input in its memory.
const maxQuotedInput = 4 << 10
