package activities

import (
	"context"
	"errors"
	"log/slog"

	"github.com/overwinter-dev/overwinter/internal/image"
	"github.com/overwinter-dev/overwinter/internal/sandbox"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// TerminateSandbox ends every sandbox of the session: the named one, and any from a create whose
// response was lost. It returns when they have ended. A late attempt leaves those that the session has
// got since. If Postgres is unavailable, it terminates the named one and returns an error, so that it is
// repeated for the rows.
func (g *sandboxes) TerminateSandbox(ctx context.Context, in SandboxRef) error {
	stop := beat(ctx)
	defer stop()
	return g.terminate(ctx, in)
}

func (g *sandboxes) terminate(ctx context.Context, in SandboxRef) error {
	rows, err := g.store.SandboxesOpen(ctx, in.SessionID)
	if err != nil {
		return errors.Join(stored(err), g.terminateNamed(ctx, in))
	}
	var failed error
	for _, row := range rows {
		if in.Transition > 0 && row.Transition > in.Transition { // another attempt has ended the sandboxes of that time
			g.Logger.WarnContext(ctx, "a sandbox of a session that has moved on is not terminated", slog.String("session_id", in.SessionID),
				slog.Int64("generation", row.Generation), slog.String("sandbox_id", row.SandboxID), slog.String("reason", in.Reason))
			continue
		}
		failed = errors.Join(failed, g.end(ctx, row, in.Reason))
	}
	return failed
}

// terminateOpen terminates every sandbox of a session, and returns the generations whose ends are still to be recorded.
func (g *sandboxes) terminateOpen(ctx context.Context, open *openSandboxes, reason string) (ended []int64, err error) {
	rows, err := open.checked(ctx)
	if err != nil {
		return nil, err
	}
	for _, row := range rows {
		if endErr := g.endAtProvider(ctx, row, reason); endErr != nil {
			err = errors.Join(err, endErr)
			continue
		}
		ended = append(ended, row.Generation)
	}
	return ended, err
}

// terminateNamed ends the sandbox that a request names, whose row cannot be read.
func (g *sandboxes) terminateNamed(ctx context.Context, in SandboxRef) error {
	if in.SandboxID == "" {
		return nil
	}
	if err := g.Sandbox.Open(in.SandboxID).Terminate(ctx); err != nil {
		return err
	}
	g.Logger.InfoContext(ctx, "terminated a sandbox whose row could not be read", slog.String("session_id", in.SessionID),
		slog.Int64("generation", in.Generation), slog.String("sandbox_id", in.SandboxID), slog.String("reason", in.Reason))
	return nil
}

// end terminates the sandbox of a row and records its end. It refuses a stale workflow run, which
// may not know that the sandbox is in use.
func (g *sandboxes) end(ctx context.Context, row session.SandboxRow, reason string) error {
	if err := g.store.WorkflowCheck(ctx, row.SessionID); err != nil {
		return stored(err)
	}
	if err := g.endAtProvider(ctx, row, reason); err != nil {
		return err
	}
	return stored(g.store.SandboxEnd(ctx, row.SessionID, row.Generation, reason))
}

// endAtProvider terminates the sandbox of a row.
func (g *sandboxes) endAtProvider(ctx context.Context, row session.SandboxRow, reason string) error {
	id := row.SandboxID
	if id == "" {
		found, err := g.Sandbox.Find(ctx, row.SessionID, row.Generation)
		switch {
		case sandbox.CodeOf(err) == sandbox.Gone, errors.Is(err, sandbox.ErrNameForeign):
			// Never created, or not owned by this installation.
		case err != nil:
			return err
		default:
			id = found.ID()
			// Its row does not name it, so its exit image must be requested separately.
			e := image.Exit{SandboxID: id, SessionID: row.SessionID, Generation: row.Generation}
			if err := g.store.ExitImageExpect(ctx, e); err != nil {
				return stored(err)
			}
		}
	}
	if id != "" {
		if err := g.Sandbox.Open(id).Terminate(ctx); err != nil {
			return err
		}
		g.Logger.InfoContext(ctx, "terminated a sandbox", slog.String("session_id", row.SessionID),
			slog.Int64("generation", row.Generation), slog.String("sandbox_id", id), slog.String("reason", reason))
	}
	return nil
}
