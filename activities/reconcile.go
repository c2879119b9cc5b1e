package activities

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"go.temporal.io/sdk/activity"

	"github.com/overwinter-dev/overwinter/internal/sandbox"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// snapshotAge is how old a snapshot must be that no bundle was made of before it
// is deleted: longer than saving a bundle can take.
const snapshotAge = time.Hour

// snapshotsAtOnce bounds the deletions of one look.
const snapshotsAtOnce = 100

// Reconcile lists the provider's sandboxes once and compares them with what the
// sessions own. Dead ones are told to their workflows, those that nobody owns are
// terminated, snapshots that no bundle needs are deleted. One failure does not
// keep it from the rest; all are returned together.
func (c *Control) Reconcile(ctx context.Context) (Reconciled, error) {
	stop := beat(ctx)
	defer stop()
	var out Reconciled
	// The rows first: a sandbox that is created between the two looks is then
	// listed without a row and young, rather than a row without a sandbox.
	rows, err := c.Store.SandboxesOpen(ctx, "")
	if err != nil {
		return out, stored(err)
	}
	listed, err := c.Sandbox.List(ctx)
	if err != nil {
		return out, err
	}
	out.Listed = len(listed)
	running := make(map[string]bool, len(listed))
	for _, l := range listed {
		running[l.ID] = true
	}
	var failed error
	for _, row := range rows {
		failed = errors.Join(failed, c.compare(ctx, row, running, &out))
	}
	failed = errors.Join(failed, c.reap(ctx, rows, listed, &out), c.deleteSnapshots(ctx, &out))
	if failed == nil && (out.Reported > 0 || out.Terminated > 0 || out.Deleted > 0) {
		activity.GetLogger(ctx).Info("reconciled", "reported", out.Reported, "terminated", out.Terminated, "deleted", out.Deleted)
	}
	return out, failed
}

// compare looks at one row: whether its sandbox runs, and whether it still should.
func (w *work) compare(ctx context.Context, row session.SandboxRow, running map[string]bool, out *Reconciled) error {
	old := time.Since(row.ReservedAt) > w.OrphanAge
	if !row.Current || row.Status == session.Hibernated || row.Status == session.Terminated {
		// Its session has gone on without it. A young one may be in the hands of
		// an activity that is about to end it.
		if !old {
			return nil
		}
		if err := w.end(ctx, row, "nobody owns it"); err != nil {
			return err
		}
		out.Terminated++
		return nil
	}
	revived, err := w.Tell.Revive(ctx, row.SessionID)
	if err != nil {
		return err
	}
	if revived {
		out.Revived++
		w.Logger.WarnContext(ctx, "a session had lost its workflow", slog.String("session_id", row.SessionID))
	}
	return w.check(ctx, row, running, out)
}

// check looks whether the sandbox of a session that still wants it runs.
func (w *work) check(ctx context.Context, row session.SandboxRow, running map[string]bool, out *Reconciled) error {
	switch {
	case row.SandboxID == "":
		// Being created; TerminateSandbox or the next generation sees to it.
	case running[row.SandboxID]:
		status := session.SandboxReady
		if row.ReadyAt.IsZero() {
			status = session.SandboxStarting
		}
		return w.Store.SandboxSeen(ctx, row.SessionID, row.Generation, status)
	default:
		// A listing may lag behind: ask about this one before calling it dead.
		status, err := w.Sandbox.Open(row.SandboxID).Poll(ctx)
		if err != nil && sandbox.CodeOf(err) != sandbox.Gone {
			return err
		}
		if err == nil && status.Running {
			return nil
		}
		if err := w.Store.SandboxSeen(ctx, row.SessionID, row.Generation, session.SandboxUnhealthy); err != nil {
			return err
		}
		out.Reported++
		return w.Tell.SandboxEnded(ctx, row.SessionID, session.SandboxSignal{
			Generation: row.Generation, Reason: "the provider does not list it any more",
		})
	}
	return nil
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

func (w *work) deleteSnapshots(ctx context.Context, out *Reconciled) error {
	ids, err := w.Store.SnapshotsUnreferenced(ctx, snapshotAge, snapshotsAtOnce)
	if err != nil {
		return err
	}
	var failed error
	for _, id := range ids {
		if err := w.Sandbox.DeleteImage(ctx, id); err != nil && sandbox.CodeOf(err) != sandbox.Gone {
			failed = errors.Join(failed, err)
			continue
		}
		if err := w.Store.SnapshotForget(ctx, id); err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		out.Deleted++
	}
	return failed
}
