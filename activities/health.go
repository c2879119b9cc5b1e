package activities

import (
	"context"
	"errors"

	"github.com/overwinter-dev/overwinter/internal/sandbox"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// health looks whether the sandboxes run that sessions own.
func (w *work) health(ctx context.Context, rows []session.SandboxRow, running map[string]bool, out *Reconciled) error {
	var failed error
	for _, row := range rows {
		if w.forsaken(row) {
			continue
		}
		failed = errors.Join(failed, w.check(ctx, row, running, out))
	}
	return failed
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
			Generation: row.Generation, SandboxID: row.SandboxID, Reason: "the provider does not list it any more",
		})
	}
	return nil
}
