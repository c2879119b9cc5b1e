package postgres

import (
	"context"
	"errors"
	"slices"

	"github.com/overwinter-dev/overwinter/internal/eventlog"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/postgres/dbsqlc"
	"github.com/overwinter-dev/overwinter/internal/run"
)

// lastAppend is the append of a run's last frames within the transaction that ends the run. A nil
// *lastAppend appends nothing.
type lastAppend struct{ appendTx }

// lastAppend returns the last append of an ending; nil if it has none.
func (db *DB) lastAppend(ending run.Ending) (*lastAppend, error) {
	if ending.Last == nil {
		return nil, nil
	}
	if ending.Token == "" || ending.Last.RunID != ending.RunID || ending.Last.Token != ending.Token {
		return nil, failure.Errorf(failure.Invalid, "the last append must be of the attempt that ends the run")
	}
	if !run.MayBeLast(*ending.Last) {
		return nil, failure.Errorf(failure.Invalid, "the last append of a run must have neither text nor questions")
	}
	return &lastAppend{db.newAppendTx([]eventlog.Append{*ending.Last}, false)}, nil
}

// read queries the rows that the events concern, besides those of the session and the run.
func (l *lastAppend) read(ctx context.Context, in *lookups) error {
	if l == nil {
		return nil
	}
	return l.readBlocks(ctx, in)
}

// write adds the events to those of the session's transaction, and updates the row of the run in c
// and the blocks that are still open.
func (l *lastAppend) write(ctx context.Context, s *sessionTx, c *closing) error {
	if l == nil {
		return nil
	}
	session := &appendSession{SessionsLockRow: dbsqlc.SessionsLockRow{
		ID: s.row.ID, No: s.row.No, Status: s.row.Status, Generation: s.row.Generation, LastSeq: s.row.LastSeq,
		Title: s.row.Title, TitleGiven: s.row.TitleGiven, Now: s.now,
	}}
	run := &appendRun{RunsForAppendRow: dbsqlc.RunsForAppendRow{
		ID: c.Run.ID, No: c.Run.No, SessionID: c.Run.SessionID, Token: c.Run.Token, LastFrame: c.Run.LastFrame,
	}}
	l.sessions = map[string]*appendSession{session.ID: session}
	l.runs = map[string]*appendRun{run.ID: run}
	l.log = s.log
	if err := l.append(l.appends[0], l.fold.drafts[0]); errors.Is(err, eventlog.ErrFenced) {
		return illegal("a newer generation has run %s", run.ID)
	} else if err != nil {
		return err
	}
	s.log, s.row.LastSeq, c.Run.LastFrame = l.log, session.LastSeq, run.LastFrame
	if s.row.Title != session.Title {
		s.row.Title = session.Title
		if err := s.q.SessionSetTitle(ctx, &s.later, &dbsqlc.SessionSetTitleParams{ID: s.row.ID, Title: session.Title}); err != nil {
			return err
		}
	}
	put, err := l.fold.changed()
	if err != nil {
		return err
	}
	if len(put.BlockIds) > 0 {
		if err := s.q.BlocksPut(ctx, &s.later, &put); err != nil {
			return err
		}
	}
	for i, id := range put.BlockIds {
		key := put.ConversationIds[i] + "/" + id
		c.Writes = slices.DeleteFunc(c.Writes, func(open string) bool { return open == key })
		if put.Lives[i] {
			c.Writes = append(c.Writes, key)
		}
	}
	return l.reports.flush(ctx, s.q, &s.later)
}
