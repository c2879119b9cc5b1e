package activities

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/overwinter-dev/overwinter/internal/sandbox"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// forsaken reports whether the session of a row has moved on without its sandbox.
func (w *work) forsaken(row session.SandboxRow) bool {
	return !row.Current || row.Status == session.Hibernated || row.Status == session.Terminated
}

// reapRows ends the sandboxes of rows whose session has moved on. A young one may
// be in the hands of an activity that is about to end it.
func (w *work) reapRows(ctx context.Context, rows []session.SandboxRow, out *Reconciled) error {
	var failed error
	for _, row := range rows {
		if !w.forsaken(row) || time.Since(row.ReservedAt) <= w.OrphanAge {
			continue
		}
		if err := w.end(ctx, row, "nobody owns it"); err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		out.Terminated++
	}
	return failed
}

// reap terminates listed sandboxes of this installation that no open row names:
// their session was terminated, or their row was ended without them.
func (w *work) reap(ctx context.Context, rows []session.SandboxRow, listed []sandbox.Listing, out *Reconciled) error {
	type key struct {
		session    string
		generation int64
	}
	owned := make(map[key]bool, len(rows))
	for _, row := range rows {
		owned[key{row.SessionID, row.Generation}] = true
	}
	var failed error
	for _, l := range listed {
		if l.Role != "" || owned[key{l.Session, l.Generation}] {
			continue // builders have a short life of their own
		}
		// A row is written before its sandbox is made, but after these rows were read.
		now, err := w.Store.SandboxesOpen(ctx, l.Session)
		if err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		young := false
		for _, row := range now {
			young = young || row.Generation == l.Generation
		}
		if young {
			continue
		}
		if err := w.Sandbox.Open(l.ID).Terminate(ctx); err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		out.Terminated++
		w.Logger.WarnContext(ctx, "terminated a sandbox that nobody owned",
			slog.String("sandbox_id", l.ID), slog.String("session_id", l.Session), slog.Int64("generation", l.Generation))
	}
	return failed
}
