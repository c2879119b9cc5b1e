package activities

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/overwinter-dev/overwinter/internal/bundle"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/image"
	"github.com/overwinter-dev/overwinter/internal/manifest"
	"github.com/overwinter-dev/overwinter/internal/problem"
	"github.com/overwinter-dev/overwinter/internal/runner"
	"github.com/overwinter-dev/overwinter/internal/sandbox"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// bundleStore stores bundles and their snapshots.
type bundleStore interface {
	WorkflowCheck(ctx context.Context, sessionID string) error
	// RunWorking returns the id of the session's open run, or "". A parked run does not count.
	RunWorking(ctx context.Context, sessionID string) (string, error)
	// SandboxUnsaved returns the newest sandbox, ended or not, with work that the session's newest
	// bundle does not cover; false if no sandbox has such work.
	SandboxUnsaved(ctx context.Context, sessionID string) (session.UnsavedSandbox, bool, error)
	// ImageIntend records that an image is about to be made.
	ImageIntend(ctx context.Context, intent image.Intent) error
	// ImageIntentEnd removes an intent that failed.
	ImageIntentEnd(ctx context.Context, intentID string) error
	// SnapshotMade stores the image of an intent, before anything depends on it.
	SnapshotMade(ctx context.Context, intent image.Intent, snapshotID string) error
	// SnapshotRecord is SnapshotMade for an image that had no intent.
	SnapshotRecord(ctx context.Context, sessionID string, generation int64, snapshotID string) error
	// BundleCommit stores a bundle and makes it the session's head.
	BundleCommit(ctx context.Context, b bundle.Bundle) error
	// TransitionRecordEnded records a transition together with the ends of the sandboxes of generations.
	TransitionRecordEnded(ctx context.Context, t session.Transition, ended []int64, reason string) error
	// BundleHead returns the bundle to wake from; bundle_not_found when there is none.
	BundleHead(ctx context.Context, sessionID string) (bundle.Bundle, error)
	ProblemReport(ctx context.Context, sessionID, code, message string) error
}

// bundles are the activities that save sandboxes.
type bundles struct {
	*sandboxes
	*transcripts
	*Config
	store bundleStore
}

// SaveBundle makes the bundle that a session wakes from, and returns when it is verified and
// committed: agent stopped, transcripts stored, manifest taken, snapshot made and found at the
// provider. The sandbox keeps running unless the request releases it. SandboxLost if it has ended; a bundle of
// this generation that was saved before is returned unchanged.
func (g *bundles) SaveBundle(ctx context.Context, in SaveRequest) (Saved, error) {
	stop := beat(ctx)
	defer stop()
	open := g.openFor(in)
	saved, err := g.save(ctx, in, open)
	if err != nil || in.Release == "" || saved.BundleID == "" {
		return saved, err
	}
	g.release(ctx, in, open, &saved)
	return saved, nil
}

// openSandboxes are the sandboxes of a session that is about to be released.
type openSandboxes struct {
	sandboxes *sandboxes
	sessionID string
	// If this attempt is late, the session may have a sandbox of a later generation than upTo, or use the same one again, since
	// the transition before, which follows the release. 0: none follows.
	upTo, before int64
	rows         []session.SandboxRow
	known        bool
}

// openFor returns the sandboxes that a request releases, unread.
func (g *bundles) openFor(in SaveRequest) *openSandboxes {
	o := &openSandboxes{sandboxes: g.sandboxes, sessionID: in.SessionID, upTo: in.Generation}
	if in.Then != nil {
		o.before = in.Then.No
	}
	return o
}

// read reads the sandboxes concurrently with a statement that checks the workflow run.
func (o *openSandboxes) read(ctx context.Context) error {
	rows, err := o.sandboxes.store.SandboxesOpen(ctx, o.sessionID)
	o.rows = slices.DeleteFunc(rows, func(row session.SandboxRow) bool {
		return row.Generation > o.upTo || o.before > 0 && row.Transition >= o.before
	})
	o.known = err == nil
	return stored(err)
}

// checked returns the sandboxes. Unless read was called, it reads them, and refuses a stale workflow
// run, which may not know that they are in use.
func (o *openSandboxes) checked(ctx context.Context) ([]session.SandboxRow, error) {
	if o.known {
		return o.rows, nil
	}
	err := inParallel(
		func() error { return stored(o.sandboxes.store.WorkflowCheck(ctx, o.sessionID)) },
		func() error { return o.read(ctx) },
	)
	return o.rows, err
}

// releaseTimeout is how long SaveBundle tries to terminate a sandbox. After that the workflow does it.
const releaseTimeout = 30 * time.Second

// release terminates the sandboxes of a session that has been saved, and records the transition
// that follows. The workflow does the rest if release fails: release only saves round trips through
// Temporal.
func (g *bundles) release(ctx context.Context, in SaveRequest, open *openSandboxes, saved *Saved) {
	ctx, cancel := context.WithTimeout(ctx, releaseTimeout)
	defer cancel()
	ended, err := g.terminateOpen(ctx, open, in.Release)
	if err == nil && in.Then != nil {
		t := *in.Then
		t.At = time.Now().UTC()
		recordErr := g.store.TransitionRecordEnded(ctx, t, ended, in.Release)
		if recordErr == nil {
			saved.Released, saved.Recorded = true, t.At
			return
		}
		g.Logger.WarnContext(ctx, "could not record that a session is saved; its workflow retries",
			slog.String("session_id", in.SessionID), slog.Any("error", recordErr))
	}
	for _, generation := range ended { // whatever became of the others
		err = errors.Join(err, stored(g.sandboxes.store.SandboxEnd(ctx, in.SessionID, generation, in.Release)))
	}
	if saved.Released = err == nil; err != nil {
		g.Logger.WarnContext(ctx, "could not terminate a saved sandbox; its workflow retries",
			slog.String("session_id", in.SessionID), slog.String("sandbox_id", in.SandboxID), slog.Any("error", err))
	}
}

// save makes a bundle. If the request releases the sandbox, it reads open concurrently with the commit of the bundle.
func (g *bundles) save(ctx context.Context, in SaveRequest, open *openSandboxes) (Saved, error) {
	if in.Unsaved {
		if err := g.store.WorkflowCheck(ctx, in.SessionID); err != nil {
			return Saved{}, stored(err)
		}
	}
	in, wanted, err := g.unsavedOf(ctx, in)
	if err != nil || !wanted {
		return Saved{}, err
	}
	sb := g.Sandbox.Open(in.SandboxID)
	var openRun *string
	var pingErr error
	if in.Checkpoint {
		var ping runner.Ping
		ping, pingErr = g.pinged(ctx, sb, in.SessionID, in.Generation, time.Second)
		openRun = &ping.Run
	}
	var saved Saved
	var before bool
	var late error             // not returned if the bundle was saved before
	var prepared *preparedSeal // not executed unless the checks succeed
	var sealErr error
	err = inParallel(
		func() (err error) { late, err = g.late(ctx, in); return err },
		func() (err error) { saved, before, err = g.savedBefore(ctx, in); return err },
		func() error {
			prepared, sealErr = g.prepareSeal(ctx, in.SessionID, in.Generation, sb)
			return nil
		},
	)
	switch {
	case err != nil || before:
		prepared.abandon()
		return saved, err
	case late != nil:
		prepared.abandon()
		return Saved{}, late
	case pingErr != nil:
		prepared.abandon()
		return Saved{}, lostOr(ctx, sb, pingErr)
	case sealErr != nil:
		return Saved{}, lostOr(ctx, sb, sealErr)
	}
	prepared.openRun = openRun
	intent := snapshotIntent(in.SessionID, in.Generation, sb)
	var sealed manifest.Manifest
	err = inParallel(
		func() error {
			defer await(ctx, "the runner in the sandbox to stop the agent")()
			sealed, sealErr = g.sealPrepared(ctx, prepared, 2*time.Second)
			return nil
		},
		func() error { return stored(g.store.ImageIntend(ctx, intent)) },
	)
	if sealErr != nil {
		g.endIntent(ctx, intent)
		return Saved{}, lostOr(ctx, sb, sealErr)
	}
	if err != nil {
		return Saved{}, err
	}
	var snapshot string
	err = inParallel(
		func() (err error) { sealed.LastSeq, err = g.Log.Position(ctx, in.SessionID); return stored(err) },
		func() (err error) { snapshot, err = g.snapshotFor(ctx, intent, sb, lostOr); return err },
	)
	if err != nil {
		return Saved{}, err
	}
	if tree := sealed.Tree; tree != nil && tree.Unchecked == "" {
		g.Metrics.SnapshotSized(tree.Bytes)
	}
	err = inParallel(
		func() (err error) {
			saved, err = g.commit(ctx, bundle.Bundle{
				ID: in.BundleID, SessionID: in.SessionID, Generation: in.Generation, Checkpoint: in.Checkpoint,
				SnapshotID: snapshot, Manifest: sealed, Verified: true, CreatedAt: time.Now().UTC(),
			})
			return err
		},
		func() error {
			if in.Release != "" {
				_ = open.read(ctx) // repeated by release
			}
			return nil
		},
	)
	return saved, err
}

// late returns Fenced for an attempt whose seal would stop an agent that works: a checkpoint during a run, and a save whose
// transition is recorded. err is that of the check, and of a stale workflow run.
func (g *bundles) late(ctx context.Context, in SaveRequest) (late, err error) {
	if err := g.store.WorkflowCheck(ctx, in.SessionID); err != nil {
		return nil, stored(err)
	}
	switch {
	case in.Checkpoint:
		working, err := g.store.RunWorking(ctx, in.SessionID)
		if err == nil && working != "" {
			late = final(Fenced, fmt.Errorf("run %s is in progress", working))
		}
		return late, stored(err)
	case in.Then != nil:
		s, err := g.sandboxes.store.SessionGet(ctx, in.SessionID)
		if err == nil && s.TransitionNo >= in.Then.No {
			late = final(Fenced, fmt.Errorf("transition %d was recorded by another attempt", in.Then.No))
		}
		return late, stored(err)
	}
	return nil, nil
}

// unsavedOf returns the sandbox with unsaved work that a request refers to, and reports whether
// there is one.
func (g *bundles) unsavedOf(ctx context.Context, in SaveRequest) (SaveRequest, bool, error) {
	if !in.Unsaved {
		return in, true, nil
	}
	row, worked, err := g.store.SandboxUnsaved(ctx, in.SessionID)
	if err != nil || !worked {
		return in, false, stored(err)
	}
	if row.Generation != in.Generation { // the sandbox is fenced: only a restore saves it
		return in, false, fmt.Errorf("generation %d has unsaved work, which a restore saves", row.Generation)
	}
	in.SandboxID = row.SandboxID
	return in, true, nil
}

// DropSandbox saves the conversation and discards the rest: a bundle without a snapshot, from which
// the session wakes in a fresh sandbox. The agent is stopped first if it still can be, so that its
// final output is stored.
func (g *bundles) DropSandbox(ctx context.Context, in SaveRequest) (Saved, error) {
	stop := beat(ctx)
	defer stop()
	if err := g.store.WorkflowCheck(ctx, in.SessionID); err != nil {
		return Saved{}, stored(err)
	}
	if saved, ok, err := g.savedBefore(ctx, in); ok || err != nil {
		return saved, err
	}
	if err := g.seal(ctx, in.SessionID, in.Generation, g.Sandbox.Open(in.SandboxID), 2*time.Second); err != nil {
		g.Logger.WarnContext(ctx, "could not flush transcripts before terminating the sandbox",
			slog.String("session_id", in.SessionID), slog.Any("error", err))
	}
	bundle := bundle.Bundle{
		ID: in.BundleID, SessionID: in.SessionID, Generation: in.Generation, CreatedAt: time.Now().UTC(),
	}
	if err := g.storedManifest(ctx, &bundle); err != nil {
		return Saved{}, err
	}
	return g.commit(ctx, bundle)
}

// RescueBundle saves the remains of an ended sandbox: the files that the provider kept, or those of
// the previous bundle, with the transcripts that were stored while the agent worked. The result is
// not verified. If nothing is left, no bundle is made. A sandbox that turns out to be running is
// saved like any other.
func (g *bundles) RescueBundle(ctx context.Context, in SaveRequest) (Saved, error) {
	stop := beat(ctx)
	defer stop()
	in, wanted, err := g.unsavedOf(ctx, in)
	if err != nil || !wanted {
		return Saved{}, err
	}
	if saved, ok, err := g.savedBefore(ctx, in); ok || err != nil {
		return saved, err
	}
	saved, err := g.rescue(ctx, in, bundle.Bundle{
		ID: in.BundleID, SessionID: in.SessionID, Generation: in.Generation, CreatedAt: time.Now().UTC(),
	})
	if sandbox.CodeOf(err) == sandbox.Conflict { // it was reported lost by mistake
		return g.save(ctx, in, g.openFor(in))
	}
	return saved, err
}

// rescue commits a bundle of a sandbox that has ended.
func (g *bundles) rescue(ctx context.Context, in SaveRequest, bundle bundle.Bundle) (Saved, error) {
	var err error
	if bundle.SnapshotID, err = g.exitSnapshot(ctx, in); err != nil {
		return Saved{}, err
	}
	if bundle.SnapshotID == "" {
		head, err := g.store.BundleHead(ctx, in.SessionID)
		if err != nil && failure.CodeOf(err) != failure.NoBundle {
			return Saved{}, stored(err)
		}
		if head.SnapshotID != "" {
			bundle.SnapshotID, bundle.Manifest = head.SnapshotID, head.Manifest
			bundle.Manifest.AgentFiles = nil
			bundle.Manifest.Lost = lostSince(head)
		}
	}
	if err := g.storedManifest(ctx, &bundle); err != nil {
		return Saved{}, err
	}
	if err := g.reportLimit(ctx, in); err != nil {
		return Saved{}, err
	}
	if bundle.SnapshotID == "" && len(bundle.Manifest.AgentFiles) == 0 {
		return Saved{}, nil
	}
	return g.commit(ctx, bundle)
}

// lostSince returns the losses of a session that falls back to the files of a bundle.
func lostSince(b bundle.Bundle) []string {
	if len(b.Manifest.Lost) > 0 {
		return b.Manifest.Lost // the files in this bundle are those of an even older one
	}
	return []string{"workspace changes since " + b.CreatedAt.UTC().Format(time.RFC3339)}
}

// savedBefore finds the bundle that an earlier attempt made of this generation.
func (g *bundles) savedBefore(ctx context.Context, in SaveRequest) (Saved, bool, error) {
	head, err := g.store.BundleHead(ctx, in.SessionID)
	if failure.CodeOf(err) == failure.NoBundle {
		return Saved{}, false, nil
	}
	if err != nil {
		return Saved{}, false, stored(err)
	}
	done := head.ID == in.BundleID || head.Generation == in.Generation && !head.Checkpoint
	return Saved{BundleID: head.ID, Verified: head.Verified}, done, nil
}

func (g *bundles) commit(ctx context.Context, b bundle.Bundle) (Saved, error) {
	if err := g.store.BundleCommit(ctx, b); err != nil {
		return Saved{}, stored(err)
	}
	g.Logger.InfoContext(ctx, "committed a bundle", slog.String("session_id", b.SessionID), slog.String("bundle_id", b.ID),
		slog.Int64("generation", b.Generation), slog.String("snapshot_id", b.SnapshotID), slog.Bool("verified", b.Verified))
	return Saved{BundleID: b.ID, Verified: b.Verified}, nil
}

// exitSnapshot returns the image that the provider made when the sandbox ended, or "" if the
// provider made none.
func (g *bundles) exitSnapshot(ctx context.Context, in SaveRequest) (string, error) {
	if in.SandboxID == "" {
		return "", nil
	}
	sb := g.Sandbox.Open(in.SandboxID)
	image, err := sb.ExitSnapshot(ctx)
	switch sandbox.CodeOf(err) {
	case "":
	case sandbox.Gone, sandbox.Unsupported, sandbox.Invalid:
		return "", nil
	default:
		return "", fmt.Errorf("exit snapshot: %w", err)
	}
	if err := g.store.SnapshotRecord(ctx, in.SessionID, in.Generation, image); err != nil {
		return "", stored(err)
	}
	exists, err := g.resolves(ctx, image)
	if err != nil || !exists {
		return "", err
	}
	return image, nil
}

// lostOr asks the provider about the sandbox that err came from: SandboxLost if
// it has ended, otherwise err, final where a retry cannot help.
func lostOr(ctx context.Context, sb *sandbox.Sandbox, err error) error {
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

// limitError is the reason of a provider that ended a sandbox because of a limit.
type limitError struct{ limit, reason string }

func (e *limitError) Error() string { return e.limit + ": " + e.reason }

// exceeded reports whether err means that the sandbox exceeded a limit.
func exceeded(err error) bool {
	_, ok := errors.AsType[*limitError](err)
	return ok
}

// reportLimit records the limit that an ended sandbox exceeded, if that ended it.
func (g *bundles) reportLimit(ctx context.Context, in SaveRequest) error {
	if in.SandboxID == "" {
		return nil
	}
	status, err := g.Sandbox.Open(in.SandboxID).Poll(ctx)
	switch {
	case sandbox.CodeOf(err) == sandbox.Gone:
		return nil
	case err != nil:
		return err
	case status.Limit == "":
		return nil
	}
	return stored(g.store.ProblemReport(ctx, in.SessionID, problem.SandboxLimit, (&limitError{status.Limit, status.Reason}).Error()))
}

// refusedOr makes err final if the provider would refuse a retry too.
func refusedOr(err error) error {
	if e, ok := errors.AsType[*sandbox.Error](err); ok && e.Final() {
		return final(Refused, err)
	}
	return err
}
