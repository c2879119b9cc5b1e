package postgres

import (
	"context"

	"github.com/overwinter-dev/overwinter/internal/conversation"
)

// ProblemTell adds an error event to a session's log. Called twice it adds two: that something
// failed may be told again.
func (db *DB) ProblemTell(ctx context.Context, sessionID, code, message string) error {
	return db.inSession(ctx, "tell a problem", sessionID, func(s *sessionTx) error {
		return s.add(string(conversation.EventError), "", conversation.Problem{Code: code, Message: text(message)})
	})
}
