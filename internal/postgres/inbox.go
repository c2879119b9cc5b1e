package postgres

import (
	"context"
	"slices"

	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/postgres/dbsqlc"
	"github.com/overwinter-dev/overwinter/internal/question"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// inboxOrder is the order of statuses in the list of the questions of all sessions.
var inboxOrder = []question.Status{question.Open, question.Answered, question.Expired, question.Cancelled}

// inboxCursor is the last question of a page.
type inboxCursor struct {
	Status question.Status `json:"s"`
	ID     string          `json:"i"`
}

// afterEveryID sorts after the ids of all questions, which are hexadecimal.
const afterEveryID = session.QuestionPrefix + "g"

// QuestionInbox lists the questions of all sessions: those with one status or, without a status,
// first the open ones, then those that were answered, have expired, or were cancelled. Within a
// status the newest is first.
func (db *DB) QuestionInbox(
	ctx context.Context, status question.Status, limit int, cursor string,
) (items []question.Question, nextCursor string, err error) {
	const doing = "list the questions of all sessions"
	statuses, before := inboxOrder, afterEveryID
	if status != "" {
		statuses = []question.Status{status}
	}
	if cursor != "" {
		var from inboxCursor
		if err := cursorDecode(cursor, &from); err != nil {
			return nil, "", err
		}
		at := slices.Index(statuses, from.Status)
		if at < 0 {
			return nil, "", failure.Errorf(failure.Invalid, "the cursor belongs to a list with another status")
		}
		statuses, before = statuses[at:], from.ID
	}
	limit = pageLimit(limit)
	var rows []dbsqlc.Question
	bytes := 0
	for _, s := range statuses {
		found, err := db.q.QuestionInbox(ctx, db.pool, &dbsqlc.QuestionInboxParams{
			Status: string(s), BeforeID: before, MaxItems: int32(limit-len(rows)) + 1, MaxBytes: int64(maxPageBytes - bytes),
		})
		if err != nil {
			return nil, "", fault(doing, err)
		}
		for _, row := range found {
			if len(rows) == limit {
				return inboxPage(rows)
			}
			rows, bytes = append(rows, row), bytes+len(row.Asked)
		}
		if bytes >= maxPageBytes {
			return inboxPage(rows)
		}
		before = afterEveryID
	}
	items, err = questionsOf(rows)
	return items, "", err
}

// inboxPage returns the questions of a page that may be followed by another, and its cursor.
func inboxPage(rows []dbsqlc.Question) (items []question.Question, nextCursor string, err error) {
	last := rows[len(rows)-1]
	items, err = questionsOf(rows)
	return items, cursorEncode(inboxCursor{Status: question.Status(last.Status), ID: last.ID}), err
}
