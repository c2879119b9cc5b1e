package postgres

import (
	"context"

	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/event"
	"github.com/overwinter-dev/overwinter/internal/postgres/dbsqlc"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// ProblemReport adds an error event to a session's log. It is not idempotent: the same failure may
// be reported again.
func (db *DB) ProblemReport(ctx context.Context, sessionID, code, message string) error {
	return db.inSession(ctx, "report a problem", sessionID, func(s *sessionTx) error {
		return s.add(string(conversation.EventError), "", conversation.Problem{Code: code, Message: text(message)})
	})
}

// SetupRecord adds a setup event to a session's log. Until the stage ends it is the session's
// current start step, and further attempts that start the same stage add nothing.
func (db *DB) SetupRecord(ctx context.Context, sessionID, stage, status string) error {
	return db.inSession(ctx, "record the progress of a setup", sessionID, func(s *sessionTx) error {
		step := ""
		if status == event.SetupStarted {
			if step = stage; s.row.Step == step {
				return nil
			}
		}
		if err := s.q.SessionSetStep(ctx, &s.later, &dbsqlc.SessionSetStepParams{ID: sessionID, Step: step}); err != nil {
			return err
		}
		return s.add(event.TypeSetup, "", event.SetupData{Stage: stage, Status: status})
	})
}

// maxNetworkEvents bounds the network events of a run, across all attempts.
const maxNetworkEvents = 100

// NetworkRecord adds network events of a run to a session's log, up to maxNetworkEvents for the
// run. It is not idempotent.
func (db *DB) NetworkRecord(ctx context.Context, sessionID, runID string, refusals []session.Refusal) error {
	return db.inSession(ctx, "record refused connections", sessionID, func(s *sessionTx) error {
		have, err := s.q.EventsOfRunCount(ctx, s, &dbsqlc.EventsOfRunCountParams{SessionID: sessionID, RunID: runID, Type: event.TypeNetwork})
		if err != nil {
			return err
		}
		for _, r := range refusals[:max(0, min(len(refusals), maxNetworkEvents-int(have)))] {
			data := event.NetworkData{
				Host: text(r.Host), IP: text(r.IP), Port: r.Port, Protocol: text(r.Protocol), Verdict: text(r.Verdict), Count: r.Count,
			}
			if err := s.add(event.TypeNetwork, runID, data); err != nil {
				return err
			}
		}
		return nil
	})
}
