package apitest

import (
	"context"
	"slices"
	"time"

	"github.com/overwinter-dev/overwinter/internal/event"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/question"
	"github.com/overwinter-dev/overwinter/internal/resource"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// Ask adds an open question to a session, with its event, and returns its id.
func (m *Store) Ask(id string, asked question.Asked, timeout time.Duration) string {
	q := question.Question{
		ID: session.NewID(session.QuestionPrefix), SessionID: id, RunID: session.NewID(session.RunPrefix), Asked: asked,
		Status: question.Open, CreatedAt: time.Now(), ExpiresAt: time.Now().Add(timeout),
	}
	m.With(id, func(r *Row) {
		r.Questions = append(r.Questions, q)
		m.Append(r, event.TypeQuestion, event.QuestionData{Question: resource.Question(q)})
	})
	return q.ID
}

// QuestionList implements api.Store. It returns all items in one page.
func (m *Store) QuestionList(_ context.Context, id string, status question.Status, _ int, _ string) ([]question.Question, string, error) {
	leave, err := m.enter("QuestionList")
	if err != nil {
		return nil, "", err
	}
	defer leave()
	r, err := m.get(id)
	if err != nil {
		return nil, "", err
	}
	var out []question.Question
	for _, q := range slices.Backward(r.Questions) {
		if status == "" || q.Status == status {
			out = append(out, q)
		}
	}
	return out, "", nil
}

// QuestionsOfRuns implements api.Store.
func (m *Store) QuestionsOfRuns(_ context.Context, id string, runIDs []string) ([]question.Question, error) {
	leave, err := m.enter("QuestionsOfRuns")
	if err != nil {
		return nil, err
	}
	defer leave()
	r, err := m.get(id)
	if err != nil {
		return nil, err
	}
	var out []question.Question
	for _, q := range r.Questions {
		if slices.Contains(runIDs, q.RunID) {
			out = append(out, q)
		}
	}
	return out, nil
}

// QuestionInbox implements api.Store. It returns all items in one page.
func (m *Store) QuestionInbox(_ context.Context, status question.Status, _ int, _ string) ([]question.Question, string, error) {
	leave, err := m.enter("QuestionInbox")
	if err != nil {
		return nil, "", err
	}
	defer leave()
	var open, rest []question.Question
	for _, r := range m.rows {
		for _, q := range r.Questions {
			switch {
			case status != "" && q.Status != status:
			case q.Status == question.Open:
				open = append(open, q)
			default:
				rest = append(rest, q)
			}
		}
	}
	return append(open, rest...), "", nil
}

// QuestionGet implements api.Store.
func (m *Store) QuestionGet(_ context.Context, id, questionID string) (question.Question, error) {
	leave, err := m.enter("QuestionGet")
	if err != nil {
		return question.Question{}, err
	}
	defer leave()
	q, err := m.question(id, questionID)
	if err != nil {
		return question.Question{}, err
	}
	return *q, nil
}

// QuestionAnswer implements api.Store.
func (m *Store) QuestionAnswer(_ context.Context, id, questionID string, answer question.Answer) (question.Question, error) {
	leave, err := m.enter("QuestionAnswer")
	if err != nil {
		return question.Question{}, err
	}
	defer leave()
	q, err := m.question(id, questionID)
	if err != nil {
		return question.Question{}, err
	}
	switch {
	case q.Status != question.Open:
		return question.Question{}, q.Status.Closed()
	case !time.Now().Before(q.ExpiresAt):
		return question.Question{}, question.Expired.Closed()
	}
	if faults := q.Asked.Check(answer); len(faults) > 0 {
		return question.Question{}, &failure.Error{Code: failure.Invalid, Message: faults[0].Message, Fields: faults}
	}
	q.Status, q.Answer, q.ResolvedAt = question.Answered, &answer, time.Now()
	m.Append(m.rows[id], event.TypeQuestionResolved, event.QuestionResolved(*q))
	answered := *q
	answered.Notify = m.rows[id].Session.Status == session.Hibernated
	return answered, nil
}

func (m *Store) question(id, questionID string) (*question.Question, error) {
	r, err := m.get(id)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(r.Questions, func(q question.Question) bool { return q.ID == questionID })
	if i < 0 {
		return nil, failure.Errorf(failure.NoQuestion, "there is no question %s", questionID)
	}
	return &r.Questions[i], nil
}
