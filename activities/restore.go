package activities

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/overwinter-dev/overwinter/internal/bundle"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/manifest"
	"github.com/overwinter-dev/overwinter/internal/receipt"
	"github.com/overwinter-dev/overwinter/internal/runner"
	"github.com/overwinter-dev/overwinter/internal/runnerexec"
	"github.com/overwinter-dev/overwinter/internal/sandbox"
	"github.com/overwinter-dev/overwinter/internal/session"
	"github.com/overwinter-dev/overwinter/internal/transcript"
	"github.com/overwinter-dev/overwinter/internal/turn"
)

// restoreStore stores the bundles that a session can wake from, and the results of restores.
type restoreStore interface {
	WorkflowCheck(ctx context.Context, sessionID string) error
	SandboxUnsaved(ctx context.Context, sessionID string) (session.UnsavedSandbox, bool, error)
	SandboxesOpen(ctx context.Context, sessionID string) ([]session.SandboxRow, error)
	// SandboxesFailed counts the sandboxes of a session that were created from an image and ended
	// before their runner answered.
	SandboxesFailed(ctx context.Context, sessionID, imageID string) (int64, error)
	BundleHead(ctx context.Context, sessionID string) (bundle.Bundle, error)
	// HandOff returns the agent that worked in a session before it was forked with another one,
	// empty if it was not, and whether the present agent has no memory yet.
	HandOff(ctx context.Context, sessionID string) (from string, due bool, err error)
	// BundleProve records that a restore has matched the bundle's manifest.
	BundleProve(ctx context.Context, bundleID string) error
	// TransitionRecordReady records a transition together with the sandbox that the session runs in and, unless proved is
	// empty, the proof of a bundle.
	TransitionRecordReady(ctx context.Context, t session.Transition, ready session.SandboxRow, proved string) error
	// BundlesRestorable lists older bundles of a session whose snapshot is kept and is not snapshotID,
	// newest first.
	BundlesRestorable(ctx context.Context, sessionID, snapshotID string) ([]bundle.Bundle, error)
	// SnapshotKeep delays the deletion of a snapshot that could not be restored.
	SnapshotKeep(ctx context.Context, snapshotID string, age time.Duration) error
	// ImagesKnown lists other images that this installation has made and that should exist at the provider.
	ImagesKnown(ctx context.Context, except string) ([]string, error)
	// ArchiveContent reads an archive in pieces, each valid until the next.
	ArchiveContent(ctx context.Context, archiveID string) iter.Seq2[[]byte, error]
	TranscriptPositions(ctx context.Context, sessionID string) ([]transcript.Position, error)
	// RevertDue returns the revert with files that a session waits for, if there is one, and its
	// target bundle.
	RevertDue(ctx context.Context, sessionID string) (due bundle.RevertDue, ok bool, err error)
	// SessionRevertTo executes the revert once the sandbox of a generation was restored from that
	// bundle: a copy of the bundle becomes the head, and everything that followed it is removed.
	// illegal_state if the command is not pending, a run is open, or the generation is not the
	// newest.
	SessionRevertTo(ctx context.Context, sessionID string, generation int64, commandID string) error
	// CommandEnd ends a command that failed.
	CommandEnd(ctx context.Context, sessionID, commandID string, status session.CommandStatus, reason string) error
	// ProblemReport adds an error event to the session's log.
	ProblemReport(ctx context.Context, sessionID, code, message string) error
	// TranscriptLimitsReached returns the limits that kept transcripts from being stored whole.
	TranscriptLimitsReached(ctx context.Context, sessionID string) ([]transcript.Limit, error)
}

// restores are the activities that restore sessions from bundles.
type restores struct {
	*bundles
	*Config
	store restoreStore
}

const (
	// confirmQuestions is how often the provider is asked about an image that it does not find.
	confirmQuestions = 3
	// maxFailedSandboxes is how many sandboxes of a snapshot may end before their runner answers,
	// until the snapshot counts as damaged.
	maxFailedSandboxes = 2
	// maxFallbacks bounds the bundles that one restore falls back to.
	maxFallbacks = 6
	// keepUnrestorable is how long a snapshot is kept that could not be restored.
	keepUnrestorable = 7 * 24 * time.Hour
)

// RestoreSandbox creates the sandbox of a generation from the session's newest bundle and compares
// the result with the bundle's manifest. It updates the agent's files from the stored transcripts.
//
// Work that no bundle covers comes first, for example after a failed snapshot: a sandbox that still
// runs is reused, or saved if its runner does not answer; one that has ended is rescued. Only the
// provider decides which of the two it is. A revert with files comes next: see revertTo. A missing
// or damaged snapshot is replaced by an older one, or by a fresh sandbox, once that is confirmed.
func (g *restores) RestoreSandbox(ctx context.Context, in SandboxRequest) (SandboxReady, error) {
	stop := beat(ctx)
	defer stop()
	k, err := g.known(ctx, in)
	if err != nil {
		return SandboxReady{}, err
	}
	if ready, ok, err := k.restored(in); ok || err != nil {
		return ready, err
	}
	if !in.Fresh {
		if ready, ok, err := g.settleUnsaved(ctx, in, k); ok || err != nil {
			return ready, err
		}
		if k.worked { // what was saved may make it impossible
			if k.due, k.revert, err = g.store.RevertDue(ctx, in.SessionID); err != nil {
				return SandboxReady{}, stored(err)
			}
		}
		if k.revert {
			if err := g.revertTo(ctx, in, k.due); err != nil {
				return SandboxReady{}, err
			}
		}
	}
	for i := range maxFallbacks {
		saved := k.head
		if i > 0 || k.worked || k.revert { // the head may be another one since
			if saved, err = g.head(ctx, in.SessionID); err != nil {
				return SandboxReady{}, err
			}
		}
		if in.Fresh && saved.SnapshotID != "" {
			if err := g.fallBack(ctx, in, saved, bundle.Bundle{}); err != nil {
				return SandboxReady{}, err
			}
			continue
		}
		ready, err := g.restoreFrom(ctx, in, saved)
		unusable, ok := errors.AsType[*unusableError](err)
		if !ok {
			return ready, err
		}
		older, err := g.fallbackFor(ctx, in, saved, unusable)
		if err != nil {
			return SandboxReady{}, err
		}
		if err := g.fallBack(ctx, in, saved, older); err != nil {
			return SandboxReady{}, err
		}
	}
	return SandboxReady{}, fmt.Errorf("restore %s: more than %d snapshots could not be restored", in.SessionID, maxFallbacks)
}

// known is what is stored about a session when its restore begins.
type known struct {
	session session.Session // read if a transition is to be recorded
	unsaved session.UnsavedSandbox
	worked  bool // there is an unsaved sandbox
	open    []session.SandboxRow
	head    bundle.Bundle // zero if there is none
	due     bundle.RevertDue
	revert  bool // one is due
}

// known reads it in one round trip.
func (g *restores) known(ctx context.Context, in SandboxRequest) (known, error) {
	var k known
	reads := []func() error{
		func() error { return stored(g.store.WorkflowCheck(ctx, in.SessionID)) },
		func() (err error) { k.head, err = g.head(ctx, in.SessionID); return err },
	}
	if !in.Fresh {
		reads = append(reads,
			func() (err error) {
				k.unsaved, k.worked, err = g.store.SandboxUnsaved(ctx, in.SessionID)
				return stored(err)
			},
			func() (err error) { k.due, k.revert, err = g.store.RevertDue(ctx, in.SessionID); return stored(err) },
		)
	}
	reads = append(reads, func() (err error) { k.open, err = g.store.SandboxesOpen(ctx, in.SessionID); return stored(err) })
	if in.Then != nil {
		reads = append(reads, func() (err error) {
			k.session, err = g.sandboxes.store.SessionGet(ctx, in.SessionID)
			return stored(err)
		})
	}
	return k, together(reads...)
}

// head returns the bundle to restore from; zero if there is none.
func (g *restores) head(ctx context.Context, sessionID string) (bundle.Bundle, error) {
	saved, err := g.store.BundleHead(ctx, sessionID)
	if failure.CodeOf(err) == failure.NoBundle {
		return bundle.Bundle{}, nil
	}
	return saved, stored(err)
}

// restored returns the result of an earlier attempt that has recorded the requested transition. The error is Fenced if the
// sandbox has ended since.
func (k *known) restored(in SandboxRequest) (SandboxReady, bool, error) {
	if in.Then == nil || k.session.TransitionNo < in.Then.No {
		return SandboxReady{}, false, nil
	}
	i := slices.IndexFunc(k.open, func(row session.SandboxRow) bool { return row.Current && row.Generation == in.Generation })
	if k.session.TransitionNo > in.Then.No || k.session.Status != in.Then.To || i < 0 {
		return SandboxReady{}, false, final(Fenced, fmt.Errorf("transition %d was recorded by another attempt", in.Then.No))
	}
	row := k.open[i]
	return SandboxReady{
		Generation: row.Generation, SandboxID: row.SandboxID, Deadline: row.Deadline, Receipt: k.session.Receipt, Recorded: time.Now().UTC(),
	}, true, nil
}

// restoreFrom creates the sandbox from one bundle. *unusableError: its snapshot cannot be restored.
func (g *restores) restoreFrom(ctx context.Context, in SandboxRequest, bundle bundle.Bundle) (SandboxReady, error) {
	from := origin{image: bundle.SnapshotID, snapshot: bundle.SnapshotID != "", outdated: g.outdated(bundle.Manifest.Runner)}
	from.unrecorded = from.snapshot && in.Then != nil
	var found verification
	var kept keptTranscripts
	readKept := func() (err error) { kept, err = g.keptTranscripts(ctx, in.SessionID); return err }
	var handedFrom string
	var due bool
	handOff := func() (err error) {
		handedFrom, due, err = g.store.HandOff(ctx, in.SessionID)
		return stored(err)
	}
	var ready SandboxReady
	var sb *sandbox.Sandbox
	var err error
	if from.snapshot {
		from.meanwhile = func(ctx context.Context, sb *sandbox.Sandbox) (awake bool, err error) {
			err = together(
				func() (err error) { found, awake, err = g.verifyRunning(ctx, in, sb, bundle.Manifest); return err },
				handOff, readKept,
				func() error { g.prepareLink(ctx, in, sb); return nil },
			)
			return awake, err
		}
		ready, sb, err = g.startFromSnapshot(ctx, in, from)
	} else {
		from = origin{}
		if from.image, err = g.image(ctx, in.SessionID); err == nil {
			ready, sb, err = g.start(ctx, in, from)
		}
		if err == nil {
			err = together(handOff, readKept)
		}
	}
	if err != nil {
		return SandboxReady{}, err
	}
	doubtful := doubtfulFiles(kept.positions, bundle.Manifest, found.differing)
	if from.unrecorded && (handedFrom != "" || len(doubtful) > 0) { // what follows may take long, or fail
		if err := g.recordReady(ctx, in, ready); err != nil {
			return SandboxReady{}, err
		}
	}
	if from.snapshot && handedFrom != "" {
		if err := g.installAgent(ctx, in.SessionID, sb); err != nil {
			return SandboxReady{}, g.discardUnusedOr(ctx, in, sb, err)
		}
	}
	archived := !from.snapshot && bundle.ArchiveID != ""
	if archived {
		if err := g.unpackArchive(ctx, in, sb, bundle); err != nil {
			return SandboxReady{}, g.discardUnusedOr(ctx, in, sb, err)
		}
	}
	if !from.snapshot { // the workspace is set up again, as at creation
		err = g.prepareWorkspace(ctx, in.SessionID, in.Generation, sb)
		if err == nil && bundle.ID != "" {
			found, err = g.verify(ctx, sb, bundle.Manifest)
		}
		if err != nil {
			return SandboxReady{}, g.discardUnusedOr(ctx, in, sb, err)
		}
	}
	if archived {
		found.unchecked = nil // every file was compared with the manifest of the archive
	}
	r, err := g.repairTranscripts(ctx, in, sb, bundle, found, kept, !from.snapshot && !archived)
	if err != nil {
		return SandboxReady{}, g.discardUnusedOr(ctx, in, sb, err)
	}
	if archived {
		r.Moved = bundle.Manifest.From
	}
	proved := ""
	if r.Kind == receipt.Full {
		proved = bundle.ID
	}
	if due {
		r.WithoutMemoryOf(handedFrom)
	}
	r = r.Bounded()
	ready.Receipt = &r
	return ready, g.recordRestored(ctx, in, &ready, proved)
}

// recordRestored records that a restored sandbox is ready, the proof of a bundle unless it is empty, and the requested
// transition. If the transition cannot be recorded, the workflow records it.
func (g *restores) recordRestored(ctx context.Context, in SandboxRequest, ready *SandboxReady, proved string) error {
	if in.Then != nil {
		t := *in.Then
		t.Generation, t.Receipt, t.At = ready.Generation, ready.Receipt, time.Now().UTC()
		row := session.SandboxRow{Generation: ready.Generation, SandboxID: ready.SandboxID, Health: session.SandboxReady, Deadline: ready.Deadline}
		err := g.store.TransitionRecordReady(ctx, t, row, proved)
		if err == nil {
			ready.Recorded = t.At
			return nil
		}
		g.Logger.WarnContext(ctx, "could not record that a session is restored; its workflow retries",
			slog.String("session_id", in.SessionID), slog.Any("error", err))
		if err := g.recordReady(ctx, in, *ready); err != nil {
			return err
		}
	}
	if proved == "" {
		return nil
	}
	return stored(g.store.BundleProve(ctx, proved))
}

// settleUnsaved handles work that the session's newest bundle does not cover. It returns true with
// the sandbox that has the work, if that sandbox is reused.
func (g *restores) settleUnsaved(ctx context.Context, in SandboxRequest, k known) (SandboxReady, bool, error) {
	row, worked := k.unsaved.SandboxRow, k.worked
	if !worked { // a sandbox whose setup has failed may exist; it holds no work
		var found bool
		if row, found = k.unused(in); !found {
			return SandboxReady{}, false, nil
		}
		// Its agent may not be installed in it.
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

// resolves reports whether the provider has an image. A single answer that it does not exist may be
// wrong, so it asks again after a pause.
func (g *sandboxes) resolves(ctx context.Context, image string) (bool, error) {
	defer await(ctx, awaitedImage)()
	for asked := 1; ; asked++ {
		exists, err := g.Sandbox.ImageExists(ctx, image)
		if err != nil {
			return false, fmt.Errorf("look for image %s: %w", image, err)
		}
		if exists || asked == confirmQuestions {
			return exists, nil
		}
		if err := g.pause(ctx); err != nil {
			return false, err
		}
	}
}

func (g *sandboxes) pause(ctx context.Context) error { return pauseFor(ctx, g.ConfirmPause) }

func pauseFor(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// unusableError means that no sandbox can be created from a snapshot.
type unusableError struct{ cause error }

func (e *unusableError) Error() string { return e.cause.Error() }
func (e *unusableError) Unwrap() error { return e.cause }

// blamesImage reports whether the image may be the cause of err, an error of a create.
func blamesImage(err error) bool {
	e, ok := errors.AsType[*sandbox.Error](err)
	return ok && (e.Code == sandbox.Gone || e.Code == sandbox.Damaged || e.Code == sandbox.Invalid)
}

// startFromSnapshot is start from a snapshot. If the snapshot may be the cause of a failure,
// another create after a pause confirms it.
func (g *restores) startFromSnapshot(ctx context.Context, in SandboxRequest, from origin) (SandboxReady, *sandbox.Sandbox, error) {
	var failed int64
	var exists bool
	var resolveErr error // matters only if the snapshot is used
	err := together(
		func() (err error) {
			failed, err = g.store.SandboxesFailed(ctx, in.SessionID, from.image)
			return stored(err)
		},
		func() error { exists, resolveErr = g.resolves(ctx, from.image); return nil },
	)
	if err != nil {
		return SandboxReady{}, nil, err
	}
	if failed >= maxFailedSandboxes {
		return SandboxReady{}, nil, &unusableError{fmt.Errorf("the runner did not start in %d sandboxes of snapshot %s", failed, from.image)}
	}
	if resolveErr != nil {
		return SandboxReady{}, nil, resolveErr
	}
	if !exists {
		if err := g.checkEnvironment(ctx, from.image); err != nil {
			return SandboxReady{}, nil, err
		}
	}
	ready, sb, err := g.start(ctx, in, from)
	if !blamesImage(err) {
		return ready, sb, err
	}
	if err := g.pause(ctx); err != nil {
		return SandboxReady{}, nil, err
	}
	ready, sb, err = g.start(ctx, in, from)
	if blamesImage(err) {
		err = &unusableError{err}
	}
	return ready, sb, err
}

// checkEnvironment returns an error if the provider knows none of the installation's images: then
// the account or environment is the wrong one, and nothing is lost.
func (g *restores) checkEnvironment(ctx context.Context, except string) error {
	images, err := g.store.ImagesKnown(ctx, except)
	if err != nil {
		return stored(err)
	}
	defer await(ctx, awaitedImage)()
	for _, image := range images {
		exists, err := g.Sandbox.ImageExists(ctx, image)
		if err != nil {
			return fmt.Errorf("look for image %s: %w", image, err)
		}
		if exists {
			return nil
		}
	}
	if len(images) == 0 {
		return nil
	}
	return final(Refused, fmt.Errorf("snapshot %s does not exist at the provider, and neither does any of %d other images of this installation; "+
		"check the provider's account and environment, then recover", except, len(images)))
}

// fallbackFor chooses the bundle whose files replace those of a bundle that cannot be restored; the
// zero bundle means none. It verifies that a sandbox of this session can be created at all.
func (g *restores) fallbackFor(ctx context.Context, in SandboxRequest, saved bundle.Bundle, cause *unusableError) (bundle.Bundle, error) {
	older, err := g.store.BundlesRestorable(ctx, in.SessionID, saved.SnapshotID)
	if err != nil {
		return bundle.Bundle{}, stored(err)
	}
	for _, b := range older {
		exists, err := g.resolves(ctx, b.SnapshotID)
		if err != nil {
			return bundle.Bundle{}, err
		}
		if exists {
			return b, nil
		}
	}
	image, err := g.image(ctx, in.SessionID)
	if err != nil {
		return bundle.Bundle{}, err
	}
	sb, _, err := g.Sandbox.Create(ctx, sandbox.Spec{
		Session: in.SessionID, Generation: in.Generation, Image: image, Timeout: g.SandboxTimeout,
		Command: g.serveCommand(), Env: map[string]string{runner.TokenVariable: runner.TokenHash(turn.NewToken())}, // no link to it is opened
	})
	if blamesImage(err) {
		return bundle.Bundle{}, final(Refused, fmt.Errorf("%w; a sandbox without the snapshot fails as well: %w", cause, err))
	}
	if err != nil {
		return bundle.Bundle{}, fmt.Errorf("create: %w", err)
	}
	if err := sb.Terminate(ctx); err != nil {
		return bundle.Bundle{}, fmt.Errorf("end the trial sandbox: %w", err)
	}
	return bundle.Bundle{}, nil
}

// fallBack commits a bundle with the files of an older one, or with none, and the stored
// transcripts. The bundle lists the losses. The snapshot that could not be restored is kept for a
// while.
func (g *restores) fallBack(ctx context.Context, in SandboxRequest, saved, older bundle.Bundle) error {
	if err := g.store.SnapshotKeep(ctx, saved.SnapshotID, keepUnrestorable); err != nil {
		return stored(err)
	}
	next := bundle.Bundle{
		ID: session.NewID(session.BundlePrefix), SessionID: in.SessionID, Generation: in.Generation, Checkpoint: true,
		SnapshotID: older.SnapshotID, CreatedAt: time.Now().UTC(),
	}
	if older.ID != "" {
		next.Manifest = older.Manifest
		next.Manifest.AgentFiles = nil
		next.Manifest.Lost = lostSince(older)
	}
	if err := g.storedManifest(ctx, &next); err != nil {
		return err
	}
	g.Logger.ErrorContext(ctx, "a snapshot is not restored", slog.String("session_id", in.SessionID),
		slog.String("snapshot_id", saved.SnapshotID), slog.String("fallback_snapshot_id", older.SnapshotID), slog.Bool("requested", in.Fresh))
	_, err := g.commit(ctx, next)
	return err
}

// repairTranscripts repairs a restored sandbox from the stored transcripts, and reports what was
// restored.
func (g *restores) repairTranscripts(ctx context.Context, in SandboxRequest, sb *sandbox.Sandbox, bundle bundle.Bundle, found verification, kept keptTranscripts, fresh bool) (receipt.Receipt, error) {
	r := receipt.Receipt{Kind: receipt.Full, Missing: []string{}}
	if bundle.ID == "" {
		r.Kind = receipt.Fresh
		return r, nil
	}
	agent, err := g.updateTranscripts(ctx, sb, in, kept.positions, doubtfulFiles(kept.positions, bundle.Manifest, found.differing))
	if err != nil {
		return r, err
	}
	r.Missing = append(r.Missing, agent.missing...)
	r.Unchecked = agent.unchecked
	if fresh {
		r.Missing = append(r.Missing, unstoredFiles(kept.reached)...)
	} else {
		r.Unchecked = append(r.Unchecked, unstoredFiles(kept.reached)...)
		r.Missing = append(r.Missing, found.workspace...)
		r.Unchecked = append(r.Unchecked, found.unchecked...)
	}
	switch {
	case fresh:
		r.Missing = append(r.Missing, "workspace")
		r.Kind = receipt.Partial
		if len(bundle.Manifest.AgentFiles) == 0 {
			r.Kind = receipt.Fresh
		}
		return r, nil
	case len(r.Missing) > 0 || len(bundle.Manifest.Lost) > 0:
		r.Kind = receipt.Partial
	case !bundle.Verified, agent.changed, len(r.Unchecked) > 0:
		r.Kind = receipt.Unverified
	}
	r.Missing = append(r.Missing, bundle.Manifest.Lost...)
	return r, nil
}

// keptTranscripts are the stored transcripts of a session, with the limits that kept others from being stored whole.
type keptTranscripts struct {
	positions []transcript.Position
	reached   []transcript.Limit
}

func (g *restores) keptTranscripts(ctx context.Context, sessionID string) (k keptTranscripts, err error) {
	err = together(
		func() (err error) { k.positions, err = g.store.TranscriptPositions(ctx, sessionID); return stored(err) },
		func() (err error) {
			k.reached, err = g.store.TranscriptLimitsReached(ctx, sessionID)
			return stored(err)
		},
	)
	return k, err
}

// agentFiles is the result of a restore for the agent's files.
type agentFiles struct {
	missing   []string // files that could not be restored
	unchecked []string // files that were not compared, and versions that diverge from the stored ones
	changed   bool     // files were written, or are newer than the manifest
}

// updateTranscripts makes the agent's files in a sandbox at least as new as the stored ones. It
// writes a file that is missing or is a prefix of the stored one, and keeps one that continues it.
// If the two diverge, it writes the stored one and keeps the other next to it.
func (g *restores) updateTranscripts(
	ctx context.Context, sb *sandbox.Sandbox, in SandboxRequest, positions []transcript.Position, doubtful map[string]bool,
) (agentFiles, error) {
	var out agentFiles
	if len(doubtful) == 0 {
		return out, nil
	}
	out.changed = true
	var files []transcript.Position
	var want manifest.Manifest
	for _, p := range positions {
		if !doubtful[p.Path] {
			continue
		}
		delete(doubtful, p.Path)
		file, err := g.storedFile(ctx, in.SessionID, p)
		if err != nil {
			return out, err
		}
		files, want.AgentFiles = append(files, p), append(want.AgentFiles, file)
	}
	out.missing = slices.Sorted(maps.Keys(doubtful))
	v, err := g.verifyFiles(ctx, sb, want)
	if err != nil {
		return out, err
	}
	var write []transcript.Position
	for i, p := range files {
		longer := slices.Contains(v.Longer, p.Path)
		switch {
		case p.Cut && longer:
			out.unchecked = append(out.unchecked, fmt.Sprintf("%s: only its first %d bytes are stored and were compared", p.Path, p.Size))
		case p.Cut:
			out.missing = append(out.missing, fmt.Sprintf("%s: the part after its first %d bytes was not stored, because it exceeds a limit", p.Path, p.Size))
		}
		if slices.Contains(v.Missing, p.Path) {
			write = append(write, p)
			continue
		}
		if !slices.Contains(v.Mismatched, p.Path) {
			continue // equal to the stored file, or a continuation of it
		}
		older, err := g.isOlder(ctx, in.SessionID, p, want.AgentFiles[i], v.Found)
		if err != nil {
			return out, err
		}
		if !older {
			kept := fmt.Sprintf("%s.before-restore-%d", p.Path, in.Generation)
			if err := g.copyFile(ctx, sb, p.Path, kept); err != nil {
				return out, err
			}
			out.unchecked = append(out.unchecked, fmt.Sprintf("%s: differs from the stored transcript, which is used; the sandbox's version is %s", p.Path, kept))
		}
		write = append(write, p)
	}
	if err := g.putTranscripts(ctx, sb, in.SessionID, write); err != nil {
		return out, fmt.Errorf("put transcripts: %w", err)
	}
	return out, nil
}

// doubtfulFiles returns the files of an agent that may differ between the sandbox and the store:
// those that differ from the manifest, and those that were stored after the manifest was taken.
func doubtfulFiles(positions []transcript.Position, m manifest.Manifest, differing []string) map[string]bool {
	sizes := make(map[string]int64, len(m.AgentFiles))
	for _, f := range m.AgentFiles {
		sizes[f.Path] = f.Size
	}
	doubtful := make(map[string]bool, len(differing))
	for _, path := range differing {
		doubtful[path] = true
	}
	for _, p := range positions {
		size, ok := sizes[p.Path]
		whole := p.Cut && size > p.Size // the manifest describes more than the stored part
		if !ok || size != p.Size && !whole {
			doubtful[p.Path] = true
		}
	}
	return doubtful
}

// isOlder reports whether the file in a sandbox is a prefix of the stored transcript.
func (g *restores) isOlder(ctx context.Context, sessionID string, p transcript.Position, whole manifest.File, found []manifest.File) (bool, error) {
	i := slices.IndexFunc(found, func(m manifest.File) bool { return m.Path == p.Path })
	if i < 0 || found[i].Size < 0 || found[i].Size > p.Size {
		return false, nil
	}
	if found[i].Size == p.Size {
		return found[i] == whole, nil
	}
	p.Size = found[i].Size
	beginning, err := g.storedFile(ctx, sessionID, p)
	return found[i] == beginning, err
}

// copyFile copies a file in a sandbox. It keeps an existing copy, which is of an earlier attempt
// that may have replaced the file since.
func (g *restores) copyFile(ctx context.Context, sb *sandbox.Sandbox, from, to string) error {
	script := `[ -e "$2" ] || { cp -p -- "$1" "$2.new" && mv -- "$2.new" "$2"; }`
	result, err := sb.Run(ctx, sandbox.RunSpec{Argv: []string{"sh", "-c", script, "keep", from, to}, Timeout: commandTimeout})
	if err == nil && result.Code != 0 {
		err = fmt.Errorf("cp ended with %d: %s", result.Code, result.Stderr)
	}
	if err != nil {
		return fmt.Errorf("keep %s: %w", from, err)
	}
	return nil
}

// verification lists the differences between a sandbox and a manifest.
type verification struct {
	differing []string // missing or different agent files, and differences in git
	workspace []string // entries of the workspace that are missing, changed or added
	unchecked []string // not compared
}

// prepareLink starts the exec over which the prompt that wakes a session is sent: it starts while the workspace is compared.
func (g *restores) prepareLink(ctx context.Context, in SandboxRequest, sb *sandbox.Sandbox) {
	if in.Then != nil && in.Then.Reason == session.ReasonPrompt && g.Runner.Program != "" { // else the runner may not know of it
		g.Links.Prepare(ctx, sb)
	}
}

// verifyRunning is verify of a new sandbox, in the same command that waits for its runner. awake reports that the runner has
// answered.
func (g *restores) verifyRunning(ctx context.Context, in SandboxRequest, sb *sandbox.Sandbox, m manifest.Manifest) (v verification, awake bool, err error) {
	request, err := g.ping(ctx, in.SessionID, in.Generation, awakeTimeout)
	if err != nil {
		return verification{}, false, err
	}
	found, err := g.runVerify(ctx, sb, runner.DefaultPaths().VerifyRunning(m, &request))
	return verificationOf(found, m), err == nil && found.Runner != nil, err
}

// verify compares a sandbox with a bundle's manifest.
func (g *restores) verify(ctx context.Context, sb *sandbox.Sandbox, m manifest.Manifest) (verification, error) {
	v, err := g.verifyFiles(ctx, sb, m)
	return verificationOf(v, m), err
}

func verificationOf(v runner.Verification, m manifest.Manifest) verification {
	out := verification{differing: slices.Concat(v.Missing, v.Mismatched, v.Longer)}
	switch {
	case m.Tree == nil:
		out.unchecked = []string{"workspace: the bundle has no index of it"}
	case v.Tree == nil:
		out.unchecked = []string{"workspace: the runner does not compare it"}
	default:
		out.workspace, out.unchecked = v.Tree.Paths, v.Tree.Unchecked
		if v.Tree.More > 0 {
			out.workspace = append(out.workspace, fmt.Sprintf("%d more entries of the workspace", v.Tree.More))
		}
	}
	return out
}

func (g *restores) verifyFiles(ctx context.Context, sb *sandbox.Sandbox, m manifest.Manifest) (runner.Verification, error) {
	return g.runVerify(ctx, sb, runner.DefaultPaths().Verify(m))
}

func (g *restores) runVerify(ctx context.Context, sb *sandbox.Sandbox, e runner.Exec) (runner.Verification, error) {
	stdout, err := runnerexec.Run(ctx, sb, e, verifyTimeout)
	if err != nil {
		return runner.Verification{}, fmt.Errorf("verify: %w", err)
	}
	v, err := runner.ParseVerify(stdout)
	if err != nil {
		return v, fmt.Errorf("verify: %w", err)
	}
	return v, nil
}
