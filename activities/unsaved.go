package activities

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/overwinter-dev/overwinter/internal/bundle"
	"github.com/overwinter-dev/overwinter/internal/sandbox"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// settleUnsaved handles work that the session's newest bundle does not cover. It returns true with
// the sandbox that has the work, if that sandbox is reused.
func (g *restores) settleUnsaved(ctx context.Context, in SandboxRequest, k known) (SandboxReady, bool, error) {
	row, worked := k.unsaved.SandboxRow, k.worked
	if !worked { // a sandbox whose setup has failed may exist; it contains no work
		var found bool
		if row, found = k.unused(in); !found {
			return SandboxReady{}, false, nil
		}
		// The session's agent may not be installed in that sandbox.
		if from, _, err := g.store.HandOff(ctx, in.SessionID); err != nil || from != "" {
			return SandboxReady{}, false, stored(err)
		}
		// Its setup may have changed any program: a private repository is cloned again in a fresh one.
		if private, err := g.isPrivate(ctx, in.SessionID); err != nil || private {
			return SandboxReady{}, false, err
		}
	}
	sb := g.Sandbox.Open(row.SandboxID)
	status, err := sb.Poll(ctx)
	if err != nil && !sandbox.IsGone(err) {
		return SandboxReady{}, false, fmt.Errorf("ask for sandbox %s: %w", row.SandboxID, err)
	}
	running := err == nil && status.Running
	// Once the next generation is reserved, the previous one is fenced, even if it is alive.
	if running && row.Current && row.Generation == in.Generation-1 {
		if err = g.awake(ctx, sb, row.SessionID, row.Generation, time.Second); err == nil {
			if !worked { // if it has worked, the workspace was complete before the first turn
				if err := g.prepareWorkspace(ctx, row.SessionID, row.Generation, sb); err != nil {
					return SandboxReady{}, false, g.passingIfLost(ctx, sb, err)
				}
			}
			return SandboxReady{Generation: row.Generation, SandboxID: row.SandboxID, Since: row.ReservedAt, Deadline: row.Deadline}, true, nil
		}
		if worked && k.unsaved.Waited < g.RunnerGrace || unreached(err) {
			return SandboxReady{}, false, fmt.Errorf("sandbox %s runs, but its runner does not answer: %w", row.SandboxID, err)
		}
	}
	if !worked {
		return SandboxReady{}, false, nil
	}
	return SandboxReady{}, false, g.saveUnsaved(ctx, in, row, running)
}

// passingIfLost is lostOr for a sandbox with unsaved work: if it has ended, the next attempt rescues it.
func (g *restores) passingIfLost(ctx context.Context, sb *sandbox.Sandbox, err error) error {
	if lost := lostOr(ctx, sb, err); TypeOf(lost) != SandboxLost {
		return lost
	}
	return fmt.Errorf("sandbox %s has ended meanwhile: %w", sb.ID(), err)
}

// unused finds the newest sandbox that became ready and in which the session has not worked. It
// skips one whose setup used settings that have changed since.
func (k *known) unused(in SandboxRequest) (session.SandboxRow, bool) {
	for _, row := range k.open {
		saved := row.Generation == k.head.Generation && !k.head.Checkpoint
		if row.Current && row.Generation == in.Generation-1 && !saved && row.SandboxID != "" && !row.ReadyAt.IsZero() && !row.WorkspaceChanged {
			return row, true
		}
	}
	return session.SandboxRow{}, false
}

// saveUnsaved commits a bundle of a sandbox that will not be reused: from its current files if it
// runs, otherwise from its remains.
func (g *restores) saveUnsaved(ctx context.Context, in SandboxRequest, row session.SandboxRow, running bool) error {
	bundle := bundle.Bundle{
		ID: session.NewID(session.BundlePrefix), SessionID: in.SessionID, Generation: row.Generation, CreatedAt: time.Now().UTC(),
	}
	if !row.Current { // only the newest generation may have a bundle; it gets another one when the session leaves it
		bundle.Generation, bundle.Checkpoint = in.Generation, true
	}
	g.Logger.WarnContext(ctx, "saving work that no bundle covers", slog.String("session_id", in.SessionID),
		slog.Int64("generation", row.Generation), slog.String("sandbox_id", row.SandboxID), slog.Bool("running", running))
	if !running {
		_, err := g.rescue(ctx, SaveRequest{SessionID: in.SessionID, Generation: row.Generation, SandboxID: row.SandboxID}, bundle)
		return err
	}
	sb := g.Sandbox.Open(row.SandboxID)
	var err error
	if bundle.SnapshotID, err = g.snapshot(ctx, in.SessionID, row.Generation, sb, g.passingIfLost); err != nil {
		return err
	}
	if err := g.storedManifest(ctx, &bundle); err != nil {
		return err
	}
	_, err = g.commit(ctx, bundle)
	return err
}
