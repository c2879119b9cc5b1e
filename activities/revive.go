package activities

import (
	"context"
	"log/slog"

	"github.com/overwinter-dev/overwinter/internal/session"
)

// revive starts the workflow of a session again if it is not open.
func (w *work) revive(ctx context.Context, row session.SandboxRow, out *Reconciled) error {
	revived, err := w.Tell.Revive(ctx, row.SessionID)
	if err != nil {
		return err
	}
	if revived {
		out.Revived++
		w.Logger.WarnContext(ctx, "a session had lost its workflow", slog.String("session_id", row.SessionID))
	}
	return nil
}
