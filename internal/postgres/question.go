package postgres

import (
	"context"
	"encoding/json"

	"github.com/overwinter-dev/overwinter/internal/event"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/postgres/dbsqlc"
	"github.com/overwinter-dev/overwinter/internal/question"
)

// questionCursor is the last question of a page; questions are listed newest first.
type questionCursor struct {
	ID string `json:"i"`
}

// QuestionGet returns a question, or question_not_found.
func (db *DB) QuestionGet(ctx context.Context, sessionID, questionID string) (question.Question, error) {
	row, err := db.q.QuestionGet(ctx, db.pool, &dbsqlc.QuestionGetParams{SessionID: sessionID, ID: questionID})
	if isNoRows(err) {
		if _, err := db.SessionGet(ctx, sessionID); err != nil {
			return question.Question{}, err
		}
		return question.Question{}, noQuestion(questionID)
	}
	if err != nil {
		return question.Question{}, fault("read a question", err)
	}
	return questionOf(row)
}

// QuestionList lists the questions of a session, newest first: those with one status or, without a
// status, all.
func (db *DB) QuestionList(
	ctx context.Context, sessionID string, status question.Status, limit int, cursor string,
) (items []question.Question, nextCursor string, err error) {
	const doing = "list questions"
	var from questionCursor
	if cursor != "" {
		if err := cursorDecode(cursor, &from); err != nil {
			return nil, "", err
		}
	}
	limit = pageLimit(limit)
	rows, err := db.q.QuestionList(ctx, db.pool, &dbsqlc.QuestionListParams{
		SessionID: sessionID, Status: string(status), BeforeID: from.ID, MaxItems: int32(limit) + 1, MaxBytes: maxPageBytes,
	})
	if err != nil {
		return nil, "", fault(doing, err)
	}
	if len(rows) == 0 {
		if _, err := db.SessionGet(ctx, sessionID); err != nil {
			return nil, "", err
		}
	}
	bytes := 0
	for i, row := range rows {
		if bytes += len(row.Asked); i+1 == limit && len(rows) > limit || bytes >= maxPageBytes {
			rows, nextCursor = rows[:i+1], cursorEncode(questionCursor{ID: row.ID})
			break
		}
	}
	items, err = questionsOf(rows)
	return items, nextCursor, err
}

// QuestionsOfRuns returns the questions of runs of a session that people were asked, oldest first.
func (db *DB) QuestionsOfRuns(ctx context.Context, sessionID string, runIDs []string) ([]question.Question, error) {
	rows, err := db.q.QuestionsOfRuns(ctx, db.pool, &dbsqlc.QuestionsOfRunsParams{SessionID: sessionID, RunIds: runIDs})
	if err != nil {
		return nil, fault("read the questions of runs", err)
	}
	return questionsOf(rows)
}

// QuestionAnswer answers an open question, with the event question_resolved. It returns
// question_answered, question_expired or question_cancelled if the question is no longer open,
// because another answer was first or its time has passed, and invalid_request if the answer does
// not fit the question.
func (db *DB) QuestionAnswer(ctx context.Context, sessionID, questionID string, answer question.Answer) (answered question.Question, err error) {
	late, notify := false, false
	err = db.inSession(ctx, "answer a question", sessionID, func(s *sessionTx) error {
		row, err := s.q.QuestionGet(ctx, s, &dbsqlc.QuestionGetParams{SessionID: sessionID, ID: questionID})
		if isNoRows(err) {
			return noQuestion(questionID)
		}
		if err != nil {
			return err
		}
		if row.Status != string(question.Open) {
			return question.Status(row.Status).Closed()
		}
		if row.ParkedPart > 0 {
			// Even if a signal is outstanding: the workflow reads the session for each answer.
			if err := s.signalled(ctx, true); err != nil {
				return err
			}
			notify = true
		}
		if late = !s.now.Before(row.ExpiresAt); late {
			answered, err = s.questionResolve(ctx, questionID, question.Expired, nil, question.ReasonExpired)
			return err // the expiry must be committed
		}
		q, err := questionOf(row)
		if err != nil {
			return err
		}
		if faults := q.Asked.Check(answer); len(faults) > 0 {
			return &failure.Error{Code: failure.Invalid, Message: faults[0].Field + " " + faults[0].Message, Fields: faults}
		}
		answered, err = s.questionResolve(ctx, questionID, question.Answered, &answer, "")
		return err
	})
	answered.Notify = notify
	if err == nil && late {
		return question.Question{}, question.Expired.Closed()
	}
	return answered, err
}

// QuestionExpire ends an open question that has expired, with the event question_resolved. It
// returns the question, which may have ended otherwise.
func (db *DB) QuestionExpire(ctx context.Context, sessionID, questionID string) (q question.Question, err error) {
	err = db.inSession(ctx, "expire a question", sessionID, func(s *sessionTx) error {
		row, err := s.q.QuestionGet(ctx, s, &dbsqlc.QuestionGetParams{SessionID: sessionID, ID: questionID})
		if isNoRows(err) {
			return noQuestion(questionID)
		}
		if err != nil {
			return err
		}
		if row.Status != string(question.Open) || s.now.Before(row.ExpiresAt) {
			q, err = questionOf(row)
			return err
		}
		q, err = s.questionResolve(ctx, questionID, question.Expired, nil, question.ReasonExpired)
		return err
	})
	return q, err
}

// QuestionsPending returns the questions of a run whose result its agent has not received,
// including open ones, oldest first. With again it also returns those that were sent: a write to a
// link does not prove receipt, so a new attempt of the run resends all of them.
func (db *DB) QuestionsPending(ctx context.Context, runID string, again bool) ([]question.Question, error) {
	rows, err := db.q.QuestionsPending(ctx, db.pool, &dbsqlc.QuestionsPendingParams{RunID: runID, Again: again})
	if err != nil {
		return nil, fault("read pending questions", err)
	}
	return questionsOf(rows)
}

// QuestionsDelivered records that the results of questions were sent to the agent. A report of an
// attempt that has been replaced is ignored, since it used another link.
func (db *DB) QuestionsDelivered(ctx context.Context, token string, questionIDs []string) error {
	return fault("note delivered answers", db.q.QuestionsDeliver(ctx, db.pool, &dbsqlc.QuestionsDeliverParams{
		Ids: questionIDs, Token: token,
	}))
}

func (s *sessionTx) questionResolve(
	ctx context.Context, id string, status question.Status, answer *question.Answer, reason string,
) (question.Question, error) {
	var encoded []byte
	if answer != nil {
		var err error
		if encoded, err = json.Marshal(answer); err != nil {
			return question.Question{}, err
		}
	}
	row, err := s.q.QuestionResolve(ctx, s, &dbsqlc.QuestionResolveParams{
		ID: id, Status: string(status), Answer: encoded, Reason: reason, At: s.now,
	})
	if err != nil {
		return question.Question{}, err
	}
	q, err := questionOf(row)
	if err != nil {
		return q, err
	}
	return q, s.add(event.TypeQuestionResolved, q.RunID, event.QuestionResolved(q))
}

// addQuestionsClosed appends the events of the questions that a finished run has left open.
func (s *sessionTx) addQuestionsClosed(runID string, ids []string) error {
	for _, id := range ids {
		err := s.add(event.TypeQuestionResolved, runID, event.QuestionResolvedData{QuestionID: id, Reason: question.ReasonTurnEnded})
		if err != nil {
			return err
		}
	}
	return nil
}

func questionsOf(rows []dbsqlc.Question) ([]question.Question, error) {
	out := make([]question.Question, len(rows))
	for i, row := range rows {
		var err error
		if out[i], err = questionOf(row); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func questionOf(row dbsqlc.Question) (question.Question, error) {
	q := question.Question{
		ID: row.ID, SessionID: row.SessionID, RunID: row.RunID, Status: question.Status(row.Status), Reason: row.Reason,
		CreatedAt: row.CreatedAt.UTC(), ExpiresAt: row.ExpiresAt.UTC(), ResolvedAt: orZero(row.ResolvedAt),
		Delivered: row.DeliveredAt != nil,
	}
	if err := json.Unmarshal(row.Asked, &q.Asked); err != nil {
		return q, fault("read a question", err)
	}
	if len(row.Answer) > 0 {
		if err := json.Unmarshal(row.Answer, &q.Answer); err != nil {
			return q, fault("read an answer", err)
		}
	}
	return q, nil
}
