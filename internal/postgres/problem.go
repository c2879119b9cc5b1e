package postgres

import (
	"context"

	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/wire"
)

// ProblemTell adds an error event to a session's log. Called twice it adds two: that something
// failed may be told again.
func (db *DB) ProblemTell(ctx context.Context, sessionID, code, message string) error {
	return db.inSession(ctx, "tell a problem", sessionID, func(s *sessionTx) error {
		return s.add(string(conversation.EventError), "", conversation.Problem{Code: code, Message: text(message)})
	})
}

// SetupRecord adds a setup event to a session's log. Called twice it adds two: another attempt may start a
// stage again.
func (db *DB) SetupRecord(ctx context.Context, sessionID, stage, status string) error {
	return db.inSession(ctx, "record the progress of a setup", sessionID, func(s *sessionTx) error {
		return s.add(wire.EventSetup, "", wire.SetupData{Stage: stage, Status: status})
	})
}
