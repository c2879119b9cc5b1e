package api

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/labstack/echo/v4"

	"github.com/overwinter-dev/overwinter/internal/presence"
	"github.com/overwinter-dev/overwinter/internal/question"
	"github.com/overwinter-dev/overwinter/internal/resource"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// questionStore stores the questions of agents.
type questionStore interface {
	// QuestionList returns questions, newest first. If status is empty, it returns all questions,
	// otherwise those with that status.
	QuestionList(ctx context.Context, sessionID string, status question.Status, limit int, cursor string) (items []question.Question, nextCursor string, err error)
	// QuestionInbox returns the questions of all sessions, open questions first. If status is
	// empty, it returns all questions, otherwise those with that status.
	QuestionInbox(ctx context.Context, status question.Status, limit int, cursor string) (items []question.Question, nextCursor string, err error)
	QuestionGet(ctx context.Context, sessionID, questionID string) (question.Question, error)
	// QuestionAnswer answers an open question and appends the event question_resolved. Errors:
	// question_answered, question_expired or question_cancelled if the question is no longer open,
	// invalid_request if the answer does not fit. The row makes the answer durable: any worker that
	// runs the turn delivers it.
	QuestionAnswer(ctx context.Context, sessionID, questionID string, answer question.Answer) (question.Question, error)
}

// questions are the routes of questions.
type questions struct {
	*Server
	store questionStore
}

// questionIDs returns the ids in the path.
func questionIDs(c echo.Context) (sessID, questionID string, err error) {
	if sessID, err = sessionID(c); err != nil {
		return "", "", err
	}
	questionID = c.Param("questionId")
	if !session.ValidID(session.QuestionPrefix, questionID) {
		return "", "", invalid("questionId", "must be %s and 32 lower-case hexadecimal digits", session.QuestionPrefix)
	}
	return sessID, questionID, nil
}

func (s *questions) questionList(c echo.Context) error {
	id, err := sessionID(c)
	if err != nil {
		return err
	}
	return s.listed(c, func(ctx context.Context, status question.Status, limit int, cursor string) ([]question.Question, string, error) {
		return s.store.QuestionList(ctx, id, status, limit, cursor)
	})
}

// questionInbox lists the questions of all sessions.
func (s *questions) questionInbox(c echo.Context) error { return s.listed(c, s.store.QuestionInbox) }

// listed responds with a list of questions.
func (s *questions) listed(
	c echo.Context, read func(ctx context.Context, status question.Status, limit int, cursor string) ([]question.Question, string, error),
) error {
	limit, cursor, err := listQuery(c)
	if err != nil {
		return err
	}
	statuses := []question.Status{"", question.Open, question.Answered, question.Expired, question.Cancelled}
	status := question.Status(c.QueryParam("status"))
	if !slices.Contains(statuses, status) {
		return invalid("status", "must be one of: open, answered, expired, cancelled")
	}
	items, next, err := read(c.Request().Context(), status, limit, cursor)
	if err != nil {
		return err
	}
	masker, err := s.cfg.Masks.Masker(c.Request().Context())
	if err != nil {
		return err
	}
	for i := range items {
		items[i].Asked = items[i].Asked.Map(masker.Text, masker.JSON)
	}
	return c.JSON(http.StatusOK, newPage(resource.Questions(items), next))
}

func (s *questions) questionGet(c echo.Context) error {
	id, questionID, err := questionIDs(c)
	if err != nil {
		return err
	}
	q, err := s.store.QuestionGet(c.Request().Context(), id, questionID)
	if err != nil {
		return err
	}
	masker, err := s.cfg.Masks.Masker(c.Request().Context())
	if err != nil {
		return err
	}
	q.Asked = q.Asked.Map(masker.Text, masker.JSON)
	return c.JSON(http.StatusOK, resource.Question(q))
}

// questionAnswer stores the answer, which also closes the question for other answers. The commit
// wakes the worker that runs the turn, and a worker that takes over the turn later finds the row.
func (s *questions) questionAnswer(c echo.Context) error {
	id, questionID, err := questionIDs(c)
	if err != nil {
		return err
	}
	body, _, err := readBody(c, false)
	if err != nil {
		return err
	}
	answer := body.answer()
	if err := body.done(); err != nil {
		return err
	}
	masker, err := s.cfg.Masks.Masker(c.Request().Context())
	if err != nil {
		return err
	}
	q, err := s.answer(c.Request().Context(), id, questionID, answer)
	if err != nil {
		return err
	}
	q.Asked = q.Asked.Map(masker.Text, masker.JSON)
	return c.JSON(http.StatusOK, resource.Question(q))
}

// answer stores an answer, and wakes a hibernated session so that its agent receives the answer.
func (s *questions) answer(ctx context.Context, id, questionID string, answer question.Answer) (question.Question, error) {
	q, err := s.store.QuestionAnswer(ctx, id, questionID, answer)
	if err == nil && q.Notify {
		s.signal(ctx, id, func(ctx context.Context) error { return s.cfg.Signaler.SignalCommands(ctx, id) })
	}
	return q, err
}

// answer reads an answer. An answer with a text needs no decision.
func (o *object) answer() question.Answer {
	var a question.Answer
	if raw, ok := o.take("answers"); ok {
		a.Answers = o.answers("answers", raw)
	}
	fallback := ""
	if len(a.Answers) > 0 {
		fallback = string(question.Once)
	} else {
		o.required("answer")
	}
	var decisions []string
	for _, d := range question.Decisions() {
		decisions = append(decisions, string(d))
	}
	a.Decision = question.Decision(o.oneOf("answer", fallback, decisions...))
	a.Message, _ = o.short("message", question.MaxAnswerRunes)
	if by, ok := o.text("answeredBy"); ok {
		if a.By = by; !userID.MatchString(by) {
			o.wrong("answeredBy", "must be 1 to %d visible ASCII characters", presence.MaxUserIDBytes)
		}
	}
	return a
}

// answers reads the answers by question: a text for each question, or a list if several options are
// chosen.
func (o *object) answers(name string, raw []byte) map[string]question.Words {
	fields, err := readFields(raw)
	if len(raw) == 0 || raw[0] != '{' || err != nil {
		o.wrong(name, "must be an object with the answer to each question")
		return nil
	}
	if len(fields) > question.MaxAnswers {
		o.wrong(name, "has %d answers; at most %d are allowed", len(fields), question.MaxAnswers)
		return nil
	}
	inner := &object{path: o.path + name + ".", fields: fields, taken: map[string]bool{}, wrongFields: o.wrongFields, large: o.large}
	out := map[string]question.Words{}
	for _, asked := range slices.Sorted(maps.Keys(fields)) {
		var words question.Words
		if many, ok := inner.texts(asked); ok {
			words = question.Options(many...)
			if len(many) > question.MaxAnswers {
				inner.wrong(asked, "has %d options; at most %d are allowed", len(many), question.MaxAnswers)
			}
		} else {
			text, _ := inner.text(asked)
			words = question.Text(text)
		}
		if n := utf8.RuneCountInString(words.String()); n > question.MaxAnswerRunes {
			inner.wrong(asked, "is %d characters long; at most %d are allowed", n, question.MaxAnswerRunes)
		}
		out[asked] = words
	}
	return out
}

// texts reads a list of texts. It returns false if the value is not a list.
func (o *object) texts(name string) ([]string, bool) {
	raw := o.fields[name]
	if len(raw) == 0 || raw[0] != '[' {
		return nil, false
	}
	o.taken[name] = true
	var items []string
	if err := json.Unmarshal(raw, &items); err != nil || strings.ContainsRune(strings.Join(items, ""), 0) {
		o.wrong(name, "must be a string or a list of strings without the character U+0000")
	}
	return items, true
}
