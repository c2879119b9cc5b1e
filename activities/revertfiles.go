package activities

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/overwinter-dev/overwinter/internal/bundle"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/problem"
	"github.com/overwinter-dev/overwinter/internal/sandbox"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// revertTo executes a revert with files that is due. It creates the sandbox of the
// generation from the target bundle and compares it with the manifest. Only then it changes
// anything, in one transaction that makes the bundle the head. The restore that follows finds that
// sandbox, like after an attempt that ended here. If the revert is not possible, it is refused, and
// the session is restored from its own head.
func (g *restores) revertTo(ctx context.Context, in SandboxRequest, due bundle.RevertDue) error {
	if due.Impossible != "" {
		return g.refuseRevert(ctx, in, due, errors.New(due.Impossible))
	}
	var found verification
	from := origin{image: due.Bundle.SnapshotID, snapshot: true, outdated: g.outdated(due.Bundle.Manifest.Runner)}
	from.meanwhile = func(ctx context.Context, sb *sandbox.Sandbox) (awake bool, err error) {
		found, awake, err = g.verifyRunning(ctx, in, sb, due.Bundle.Manifest)
		return awake, err
	}
	_, sb, err := g.startFromSnapshot(ctx, in, from)
	if unusable, ok := errors.AsType[*unusableError](err); ok {
		return g.refuseRevert(ctx, in, due, unusable)
	}
	if err != nil {
		return err
	}
	if differing := slices.Concat(found.differing, found.workspace); len(differing) > 0 {
		cause := fmt.Errorf("the snapshot of bundle %s is not as it was saved: %s", due.Bundle.ID, strings.Join(differing[:min(len(differing), maxDifferingNamed)], ", "))
		if err := g.refuseRevert(ctx, in, due, cause); err != nil {
			return err
		}
		return g.discardUnused(ctx, in, sb, "its session is not reverted to it", cause)
	}
	err = g.store.SessionRevertTo(ctx, in.SessionID, in.Generation, due.CommandID)
	if failure.CodeOf(err) == failure.IllegalState {
		return g.discardUnused(ctx, in, sb, "its session is not reverted to it any more", stored(err))
	}
	if err != nil {
		return stored(err)
	}
	g.Logger.InfoContext(ctx, "reverted a session to a bundle", slog.String("session_id", in.SessionID),
		slog.String("bundle_id", due.Bundle.ID), slog.Int64("generation", in.Generation))
	return nil
}

// maxDifferingNamed bounds the files that the refusal of a revert names.
const maxDifferingNamed = 5

// refuseRevert ends a revert that is not possible. The session does not change, and an event
// reports why.
func (g *restores) refuseRevert(ctx context.Context, in SandboxRequest, due bundle.RevertDue, cause error) error {
	g.Logger.WarnContext(ctx, "could not revert a session to a bundle", slog.String("session_id", in.SessionID), slog.Any("error", cause))
	if err := g.store.CommandEnd(ctx, in.SessionID, due.CommandID, session.CommandRefused, cause.Error()); err != nil {
		return stored(err)
	}
	return stored(g.store.ProblemReport(ctx, in.SessionID, problem.RevertFailed, cause.Error()))
}
