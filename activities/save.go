package activities

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/sandbox"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// SaveBundle makes the bundle that a session wakes from, and returns when it is verified and
// committed: agent stopped, transcripts stored, manifest taken, snapshot made and found at the
// provider. The sandbox keeps running unless the request releases it. SandboxLost if it has ended; a bundle of
// this generation that was saved before is returned unchanged.
func (c *Control) SaveBundle(ctx context.Context, in SaveRequest) (Saved, error) {
	stop := beat(ctx)
	defer stop()
	saved, err := c.save(ctx, in)
	if err != nil || in.Release == "" || saved.BundleID == "" {
		return saved, err
	}
	saved.Released = c.released(ctx, in)
	return saved, nil
}

// releaseTimeout is how long SaveBundle tries to terminate a sandbox. After that the workflow does it.
const releaseTimeout = 30 * time.Second

// released terminates the sandboxes of a session that has been saved, and reports whether it could. It saves a
// round trip through Temporal.
func (c *Control) released(ctx context.Context, in SaveRequest) bool {
	ctx, cancel := context.WithTimeout(ctx, releaseTimeout)
	defer cancel()
	err := c.terminate(ctx, SandboxRef{SessionID: in.SessionID, Generation: in.Generation, SandboxID: in.SandboxID, Reason: in.Release})
	if err != nil {
		c.Logger.WarnContext(ctx, "could not terminate a saved sandbox; its workflow tries again",
			slog.String("session_id", in.SessionID), slog.String("sandbox_id", in.SandboxID), slog.Any("error", err))
	}
	return err == nil
}

func (c *Control) save(ctx context.Context, in SaveRequest) (Saved, error) {
	if err := c.Store.WorkflowCheck(ctx, in.SessionID); err != nil {
		return Saved{}, stored(err) // the agent would be stopped for it
	}
	in, wanted, err := c.unsavedOf(ctx, in)
	if err != nil || !wanted {
		return Saved{}, err
	}
	if saved, ok, err := c.savedBefore(ctx, in); ok || err != nil {
		return saved, err
	}
	sb := c.Sandbox.Open(in.SandboxID)
	manifest, err := c.seal(ctx, in.SessionID, in.Generation, sb, 2*time.Second)
	if err != nil {
		return Saved{}, c.lostOr(ctx, sb, err)
	}
	if manifest.LastSeq, err = c.Log.Position(ctx, in.SessionID); err != nil {
		return Saved{}, stored(err)
	}
	snapshot, err := c.snapshot(ctx, in.SessionID, in.Generation, sb, c.lostOr)
	if err != nil {
		return Saved{}, err
	}
	exists, err := c.Sandbox.ImageExists(ctx, snapshot)
	if err != nil {
		return Saved{}, fmt.Errorf("verify snapshot %s: %w", snapshot, err)
	}
	if !exists {
		return Saved{}, fmt.Errorf("snapshot %s was made and does not resolve", snapshot)
	}
	return c.commit(ctx, session.Bundle{
		ID: in.BundleID, SessionID: in.SessionID, Generation: in.Generation, Checkpoint: in.Checkpoint,
		SnapshotID: snapshot, Manifest: manifest, Verified: true, CreatedAt: time.Now().UTC(),
	})
}

// unsavedOf names the sandbox that a request for what is unsaved means, and reports whether there is one.
func (w *work) unsavedOf(ctx context.Context, in SaveRequest) (SaveRequest, bool, error) {
	if !in.Unsaved {
		return in, true, nil
	}
	row, worked, err := w.Store.SandboxUnsaved(ctx, in.SessionID)
	if err != nil || !worked {
		return in, false, stored(err)
	}
	if row.Generation != in.Generation { // fenced off: only a restore saves it
		return in, false, fmt.Errorf("generation %d has unsaved work, which a restore saves", row.Generation)
	}
	in.SandboxID = row.SandboxID
	return in, true, nil
}

// DropSandbox saves the conversation and discards the rest: a bundle without a snapshot, from which
// the session wakes in a fresh sandbox. The agent is stopped first if it still can be, so that its
// final output is stored.
func (c *Control) DropSandbox(ctx context.Context, in SaveRequest) (Saved, error) {
	stop := beat(ctx)
	defer stop()
	if err := c.Store.WorkflowCheck(ctx, in.SessionID); err != nil {
		return Saved{}, stored(err)
	}
	if saved, ok, err := c.savedBefore(ctx, in); ok || err != nil {
		return saved, err
	}
	if _, err := c.seal(ctx, in.SessionID, in.Generation, c.Sandbox.Open(in.SandboxID), 2*time.Second); err != nil {
		c.Logger.WarnContext(ctx, "could not flush transcripts before terminating the sandbox",
			slog.String("session_id", in.SessionID), slog.Any("error", err))
	}
	bundle := session.Bundle{
		ID: in.BundleID, SessionID: in.SessionID, Generation: in.Generation, CreatedAt: time.Now().UTC(),
	}
	if err := c.storedManifest(ctx, &bundle); err != nil {
		return Saved{}, err
	}
	return c.commit(ctx, bundle)
}

// RescueBundle saves what is left of a sandbox that has ended: the files as the provider kept them, or
// those of the previous bundle, with the transcripts that were stored while the agent worked. The
// result is not verified. If nothing is left, no bundle is made. A sandbox that turns out to run is saved
// like any other.
func (c *Control) RescueBundle(ctx context.Context, in SaveRequest) (Saved, error) {
	stop := beat(ctx)
	defer stop()
	in, wanted, err := c.unsavedOf(ctx, in)
	if err != nil || !wanted {
		return Saved{}, err
	}
	if saved, ok, err := c.savedBefore(ctx, in); ok || err != nil {
		return saved, err
	}
	saved, err := c.rescue(ctx, in, session.Bundle{
		ID: in.BundleID, SessionID: in.SessionID, Generation: in.Generation, CreatedAt: time.Now().UTC(),
	})
	if sandbox.CodeOf(err) == sandbox.Conflict { // it was reported lost by mistake
		return c.save(ctx, in)
	}
	return saved, err
}

// rescue commits a bundle of a sandbox that has ended.
func (w *work) rescue(ctx context.Context, in SaveRequest, bundle session.Bundle) (Saved, error) {
	var err error
	if bundle.SnapshotID, err = w.exitSnapshot(ctx, in); err != nil {
		return Saved{}, err
	}
	if bundle.SnapshotID == "" {
		head, err := w.Store.BundleHead(ctx, in.SessionID)
		if err != nil && failure.CodeOf(err) != failure.NoBundle {
			return Saved{}, stored(err)
		}
		if head.SnapshotID != "" {
			bundle.SnapshotID, bundle.Manifest = head.SnapshotID, head.Manifest
			bundle.Manifest.AgentFiles = nil
			bundle.Manifest.Lost = lostSince(head)
		}
	}
	if err := w.storedManifest(ctx, &bundle); err != nil {
		return Saved{}, err
	}
	if err := w.reportLimit(ctx, in); err != nil {
		return Saved{}, err
	}
	if bundle.SnapshotID == "" && len(bundle.Manifest.AgentFiles) == 0 {
		return Saved{}, nil
	}
	return w.commit(ctx, bundle)
}

// lostSince is what is lost if a session falls back to the files of a bundle.
func lostSince(b session.Bundle) []string {
	if len(b.Manifest.Lost) > 0 {
		return b.Manifest.Lost // of an even older time
	}
	return []string{"workspace changes since " + b.CreatedAt.UTC().Format(time.RFC3339)}
}

// savedBefore finds the bundle that an earlier attempt made of this generation.
func (w *work) savedBefore(ctx context.Context, in SaveRequest) (Saved, bool, error) {
	head, err := w.Store.BundleHead(ctx, in.SessionID)
	if failure.CodeOf(err) == failure.NoBundle {
		return Saved{}, false, nil
	}
	if err != nil {
		return Saved{}, false, stored(err)
	}
	done := head.ID == in.BundleID || head.Generation == in.Generation && !head.Checkpoint
	return Saved{BundleID: head.ID, Verified: head.Verified}, done, nil
}

func (w *work) commit(ctx context.Context, b session.Bundle) (Saved, error) {
	if err := w.Store.BundleCommit(ctx, b); err != nil {
		return Saved{}, stored(err)
	}
	w.Logger.InfoContext(ctx, "committed a bundle", slog.String("session_id", b.SessionID), slog.String("bundle_id", b.ID),
		slog.Int64("generation", b.Generation), slog.String("snapshot_id", b.SnapshotID), slog.Bool("verified", b.Verified))
	return Saved{BundleID: b.ID, Verified: b.Verified}, nil
}

// exitSnapshot returns the image that the provider made when the sandbox ended,
// or "" when there is none.
func (w *work) exitSnapshot(ctx context.Context, in SaveRequest) (string, error) {
	if in.SandboxID == "" {
		return "", nil
	}
	sb := w.Sandbox.Open(in.SandboxID)
	image, err := sb.ExitSnapshot(ctx)
	switch sandbox.CodeOf(err) {
	case "":
	case sandbox.Gone, sandbox.Unsupported, sandbox.Invalid:
		return "", nil
	default:
		return "", fmt.Errorf("exit snapshot: %w", err)
	}
	if err := w.Store.SnapshotRecord(ctx, in.SessionID, in.Generation, image); err != nil {
		return "", stored(err)
	}
	exists, err := w.resolves(ctx, image)
	if err != nil || !exists {
		return "", err
	}
	return image, nil
}

// lostOr asks the provider about the sandbox that err came from: SandboxLost if
// it has ended, otherwise err, final where a retry cannot help.
func (w *work) lostOr(ctx context.Context, sb *sandbox.Sandbox, err error) error {
	if err == nil || ctx.Err() != nil {
		return err
	}
	ask, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	status, pollErr := sb.Poll(ask)
	switch {
	case sandbox.CodeOf(pollErr) == sandbox.Gone, pollErr == nil && !status.Running:
		if status.Limit != "" {
			err = &limitError{limit: status.Limit, reason: status.Reason}
		}
		return final(SandboxLost, fmt.Errorf("the sandbox has ended (exit code %d): %w", status.ExitCode, err))
	case pollErr != nil:
		return errors.Join(err, pollErr)
	}
	return refusedOr(err)
}

// limitError is why a provider ended a sandbox that exceeded a limit.
type limitError struct{ limit, reason string }

func (e *limitError) Error() string { return e.limit + ": " + e.reason }

// exceeded reports whether err says that the sandbox exceeded a limit.
func exceeded(err error) bool {
	_, ok := errors.AsType[*limitError](err)
	return ok
}

// reportLimit records which limit a sandbox exceeded that has ended, if it was ended for that.
func (w *work) reportLimit(ctx context.Context, in SaveRequest) error {
	if in.SandboxID == "" {
		return nil
	}
	status, err := w.Sandbox.Open(in.SandboxID).Poll(ctx)
	switch {
	case sandbox.CodeOf(err) == sandbox.Gone:
		return nil
	case err != nil:
		return err
	case status.Limit == "":
		return nil
	}
	return stored(w.Store.ProblemTell(ctx, in.SessionID, session.ProblemSandboxLimit, (&limitError{status.Limit, status.Reason}).Error()))
}

// refusedOr makes err final where the provider would refuse the same again.
func refusedOr(err error) error {
	if e, ok := errors.AsType[*sandbox.Error](err); ok && e.Final() {
		return final(Refused, err)
	}
	return err
}
