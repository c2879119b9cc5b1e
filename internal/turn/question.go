package turn

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/agenttool"
	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/eventlog"
	"github.com/overwinter-dev/overwinter/internal/permission"
	"github.com/overwinter-dev/overwinter/internal/question"
	"github.com/overwinter-dev/overwinter/internal/run"
)

// questionStore stores the questions of agents.
type questionStore interface {
	// QuestionsPending returns the open questions of a run and the ended questions whose outcome
	// its agent has not received. If again is set, it also returns questions whose outcome an
	// earlier attempt has sent.
	QuestionsPending(ctx context.Context, runID string, again bool) ([]question.Question, error)
	// QuestionExpire ends an open question that has expired, and returns it.
	QuestionExpire(ctx context.Context, sessionID, questionID string) (question.Question, error)
	// QuestionsDelivered records that the outcomes of questions were sent to the agent. It has no
	// effect unless token is the run's newest.
	QuestionsDelivered(ctx context.Context, token string, questionIDs []string) error
	// QuestionsParked returns the questions that a part of a run starts with.
	QuestionsParked(ctx context.Context, runID string, part int64) ([]question.Question, error)
	// RunPark ends the attempt with the token and parks the run, if the run only waits for people.
	RunPark(ctx context.Context, p run.Parking) (bool, error)
}

// lookForAnswers is the interval at which the rows of waiting questions are read without a
// notification of an answer.
const lookForAnswers = 5 * time.Second

// The answers that an agent receives if no person answers.
const (
	deniedByPolicy  = "The permissions of this session do not allow this."
	answerTimedOut  = "No answer came in time."
	answerDidNotFit = "The answer could not be handed over."
	tooLargeToAsk   = "This is too large to be shown to the people of this session: at most 1 MiB is allowed."
	tooLargeToAllow = "The input of this call is too large: calls that need a permission may have at most 1 MiB. Do it in smaller parts."
	tooMuchToAllow  = "The calls of this turn that needed a permission have 64 MiB together, which is the limit."
	tooManyToAsk    = "The people of this session have been asked 1000 times in this turn, which is the limit."
)

// waiting is a turn's view of the questions that its agent waits for. The rows in Postgres are
// authoritative: one statement accepts an answer, whether or not a worker is running.
type waiting struct {
	changed <-chan struct{} // signals that the session's log has grown; nil while no question is open
	stop    func()          // stops the watch; nil while no question is open
	expires time.Time       // the earliest expiry of the open questions
	looked  time.Time       // time of the last read of the rows
	due     bool            // the rows must be read now
	again   bool            // an earlier attempt may have sent answers over a link that lost them
}

// ask sorts the questions of a frame: the session's policy answers the permissions that it covers,
// and people answer the other questions. Both kinds are stored with the frame, and answers are sent
// after it is committed.
func (a *attempt) ask(questions []agent.Question, frame int64) []eventlog.Question {
	if _, ok := a.adapter.(agent.Answerer); !ok {
		return nil
	}
	var out []eventlog.Question
	for _, q := range questions {
		if len(q.ID) > question.MaxIDBytes {
			a.log().Warn("ignored a question whose id is too long", slog.Int("bytes", len(q.ID)))
			continue
		}
		answer := agent.Answer{Decision: agent.DecisionOnce}
		policy := permission.Ask
		if q.Kind == agent.Permission {
			policy = a.permissions.Of(q.ToolName)
			if _, ruled := a.permissions.Tools[q.ToolName]; !ruled && agenttool.Own(q.ToolName) && a.offersTools() {
				policy = permission.Allow
			}
		}
		switch policy {
		case permission.Deny:
			answer = agent.Answer{Decision: agent.DecisionReject, Message: deniedByPolicy}
		case permission.Allow:
		default:
			policy = permission.Ask
		}
		now := time.Now()
		timeout := time.Duration(a.start.Options.QuestionTimeout)
		if timeout <= 0 {
			timeout = question.AwakeTimeout
			if a.in.ParkAfter > 0 {
				timeout = question.DefaultTimeout
			}
		}
		asked := eventlog.Question{Frame: frame, Part: a.part, Asked: q, Shown: a.masking.shown(q), At: now, ExpiresAt: now.Add(timeout)}
		reason := a.unanswerable(q, policy)
		if given := a.givenAnswer(q); given != nil && policy == permission.Ask && reason == "" {
			asked.Decided = given
		}
		switch {
		case asked.Decided != nil:
		case policy == permission.Deny:
			asked.Decided = &answer
		case reason != "":
			asked.Decided = &agent.Answer{Decision: agent.DecisionReject, Message: reason}
		case policy == permission.Allow:
			asked.Decided = &answer
		default:
			a.limits.Asked++
		}
		if reason != "" { // stored without the large parts of the question, which a rejection does not need
			asked.Asked.Input, asked.Asked.Inquiries, asked.Asked.Suggestions = nil, nil, nil
			asked.Asked.Title, asked.Asked.ToolName = conversation.BoundedID(q.Title), conversation.BoundedID(q.ToolName)
			asked.Asked.ToolUseID = conversation.BoundedID(q.ToolUseID)
			asked.Shown = a.masking.shown(asked.Asked)
		}
		a.limits.AskedBytes += questionCost + int64(sizeOf(asked.Asked))
		out = append(out, asked)
	}
	return out
}

// questionCost is the size overhead of a question in addition to its content.
const questionCost = 1 << 10

// unanswerable returns the reason why a question cannot be stored in full and is therefore
// rejected: it is too large, or the turn had too many questions. A permission that is sent to an
// agent includes the input of the question.
func (a *attempt) unanswerable(q agent.Question, policy permission.Policy) string {
	size := sizeOf(q)
	switch {
	case policy == permission.Ask && a.limits.Asked >= question.MaxPerTurn:
		return tooManyToAsk
	case policy == permission.Ask && size > question.MaxBytes:
		return tooLargeToAsk
	case size > question.MaxBytes:
		return tooLargeToAllow
	case a.limits.AskedBytes+questionCost+int64(size) > question.MaxBytesPerTurn:
		return tooMuchToAllow
	}
	return ""
}

func sizeOf(q agent.Question) int {
	encoded, err := json.Marshal(q)
	if err != nil {
		return 0 // such a question is not stored either
	}
	return len(encoded)
}

func (a *attempt) answer(link *turnLink, answerer agent.Answerer, q agent.Question, answer agent.Answer) error {
	data, err := answerer.Answer(q, answer)
	if err != nil {
		// This must not stop the turn.
		a.log().Warn("an answer does not fit its question", slog.String("question", q.ID), slog.Any("error", err))
		data, err = answerer.Answer(q, agent.Answer{Decision: agent.DecisionReject, Message: answerDidNotFit})
	}
	if err != nil {
		return final(Refused, fmt.Errorf("answer question %s: %w", q.ID, err))
	}
	if err := link.link.Input(data); err != nil {
		return fmt.Errorf("answer question %s: %w", q.ID, err)
	}
	return nil
}

// watchAnswers makes the attempt read the rows of its questions now and whenever others add to the
// session's log.
func (a *attempt) watchAnswers() {
	a.waiting.due = true
	if a.waiting.stop == nil && a.Changes != nil {
		a.waiting.changed, a.waiting.stop = a.Changes.Watch(a.in.SessionID)
	}
}

func (a *attempt) stopWatching() {
	if a.waiting.stop != nil {
		a.waiting.stop()
	}
	a.waiting = waiting{}
}

// sendAnswers sends the agent the answers, and rejections of expired questions.
func (a *attempt) sendAnswers(ctx context.Context, link *turnLink) error {
	now := time.Now()
	w := &a.waiting
	expired := !w.expires.IsZero() && !now.Before(w.expires)
	if !w.due && !expired && (w.expires.IsZero() || now.Sub(w.looked) < lookForAnswers) {
		return nil
	}
	answerer, ok := a.adapter.(agent.Answerer)
	if !ok {
		a.stopWatching()
		return nil
	}
	pending, err := a.Store.QuestionsPending(ctx, a.in.RunID, w.again)
	if err != nil {
		return Stored(err)
	}
	w.due, w.again, w.looked, w.expires = false, false, now, time.Time{}
	var sent []string
	for _, q := range pending {
		if q.Status == question.Open && !now.Before(q.ExpiresAt) {
			if q, err = a.Store.QuestionExpire(ctx, a.in.SessionID, q.ID); err != nil {
				return Stored(err)
			}
		}
		if q.Status == question.Open {
			if w.expires.IsZero() || q.ExpiresAt.Before(w.expires) {
				w.expires = q.ExpiresAt
			}
			continue
		}
		answer := agent.Answer{Decision: agent.DecisionReject, Message: answerTimedOut}
		if q.Answer != nil {
			answer = *q.Answer
		}
		if err := a.answer(link, answerer, q.Asked, answer); err != nil {
			return err
		}
		sent = append(sent, q.ID)
	}
	if len(sent) > 0 {
		a.lastActive = now
		if err := a.Store.QuestionsDelivered(ctx, a.token, sent); err != nil {
			return Stored(err)
		}
	}
	if w.expires.IsZero() {
		a.stopWatching()
	}
	return nil
}
