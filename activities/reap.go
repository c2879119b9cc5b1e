package activities

import (
	"context"
	"errors"
	"log/slog"
	"slices"

	"github.com/overwinter-dev/overwinter/internal/sandbox"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// forsaken reports whether the session of a row has moved on without its sandbox.
func forsaken(row session.SandboxRow) bool {
	return !row.Current || row.Status == session.Hibernated || row.Status == session.Terminated
}

// reapRows ends the sandboxes of rows whose session has moved on. A young one may
// be in the hands of an activity that is about to end it.
func (l *look) reapRows(ctx context.Context) error {
	var failed []error
	for after := (session.SandboxKey{}); ; {
		rows, err := l.Store.SandboxesForsaken(ctx, l.OrphanAge, after, reconcilePage)
		if err != nil {
			return errors.Join(append(failed, err)...)
		}
		err = each(ctx, rows, func(ctx context.Context, row session.SandboxRow) error {
			if err := l.end(ctx, row, "no session owns it"); err != nil {
				return err
			}
			l.count(func(out *Reconciled) { out.Terminated++ })
			return nil
		})
		if failed = append(failed, err); len(rows) < reconcilePage || ctx.Err() != nil {
			return errors.Join(failed...)
		}
		last := rows[len(rows)-1]
		after = session.SandboxKey{SessionID: last.SessionID, Generation: last.Generation}
	}
}

// reap terminates listed sandboxes of this installation that no open row names:
// their session was terminated, or their row was ended without them. A row is
// written before its sandbox is made, so whatever was listed has had one since.
func (l *look) reap(ctx context.Context, listed []sandbox.Listing) error {
	var failed []error
	for page := range slices.Chunk(listed, reconcilePage) {
		var owned []sandbox.Listing
		var keys []session.SandboxKey
		for _, s := range page {
			if s.Role == "" { // builders end soon by themselves
				owned = append(owned, s)
				keys = append(keys, session.SandboxKey{SessionID: s.Session, Generation: s.Generation})
			}
		}
		if len(keys) == 0 {
			continue
		}
		unowned, err := l.Store.SandboxesUnowned(ctx, keys)
		if err != nil {
			return errors.Join(append(failed, err)...)
		}
		failed = append(failed, each(ctx, unowned, func(ctx context.Context, i int) error { return l.reapOne(ctx, owned[i]) }))
	}
	return errors.Join(failed...)
}

func (l *look) reapOne(ctx context.Context, s sandbox.Listing) error {
	err := l.Store.ExitImageExpect(ctx, session.ExitImage{SandboxID: s.ID, SessionID: s.Session, Generation: s.Generation})
	if err != nil {
		return err
	}
	if err := l.Sandbox.Open(s.ID).Terminate(ctx); err != nil {
		return err
	}
	l.count(func(out *Reconciled) { out.Terminated++ })
	l.Logger.WarnContext(ctx, "terminated a sandbox that no session owned",
		slog.String("sandbox_id", s.ID), slog.String("session_id", s.Session), slog.Int64("generation", s.Generation))
	return nil
}
