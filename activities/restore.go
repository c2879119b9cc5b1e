package activities

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"time"

	"github.com/overwinter-dev/overwinter/internal/bundle"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/receipt"
	"github.com/overwinter-dev/overwinter/internal/run"
	"github.com/overwinter-dev/overwinter/internal/sandbox"
	"github.com/overwinter-dev/overwinter/internal/session"
	"github.com/overwinter-dev/overwinter/internal/transcript"
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
	// TransitionRecordReady records a transition together with the sandbox that the session runs in, unless proved is empty,
	// the proof of a bundle, and, unless it is zero, a claim, which may not be granted.
	TransitionRecordReady(ctx context.Context, t session.Transition, ready session.SandboxRow, proved string, claim run.Proposal) (run.Verdict, error)
	// RunOfClaim returns the run that a claim was granted, and reports false if there is none.
	RunOfClaim(ctx context.Context, sessionID, claimID string) (run.Located, bool, error)
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
		if err == nil {
			err = g.claimedBefore(ctx, in, &ready)
		}
		return ready, err
	}
	if !in.Fresh {
		if ready, ok, err := g.settleUnsaved(ctx, in, k); ok || err != nil {
			return ready, err
		}
		if k.worked { // the work that was saved may make the revert impossible
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
		if i > 0 || k.worked || k.revert { // the head may have changed since
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

// known is the stored state of a session when its restore begins.
type known struct {
	session session.Session // set only if a transition must be recorded
	unsaved session.UnsavedSandbox
	worked  bool // there is an unsaved sandbox
	open    []session.SandboxRow
	head    bundle.Bundle // zero if there is none
	due     bundle.RevertDue
	revert  bool // one is due
}

// known reads the stored state of a session in one round trip.
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
	return k, inParallel(reads...)
}

// head returns the bundle to restore from; zero if the session has none.
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

// claimedBefore adds the run of the requested claim to the result, if it was claimed already.
func (g *restores) claimedBefore(ctx context.Context, in SandboxRequest, ready *SandboxReady) error {
	if in.Claim == nil {
		return nil
	}
	found, ok, err := g.store.RunOfClaim(ctx, in.SessionID, in.Claim.ID)
	if err != nil || !ok {
		return stored(err)
	}
	ready.Claimed = &run.Verdict{
		Granted: true, RunID: found.RunID, Dispatch: found.Dispatch, Status: session.PromptProcessing, OnUnknown: found.OnUnknown,
	}
	return nil
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
			err = inParallel(
				func() (err error) { found, awake, err = g.verifyRunning(ctx, in, sb, bundle.Manifest); return err },
				handOff, readKept,
			)
			return awake, err
		}
		ready, sb, err = g.startFromSnapshot(ctx, in, from)
	} else if ready, sb, err = g.startFresh(ctx, in); err == nil {
		err = inParallel(handOff, readKept)
	}
	if err != nil {
		return SandboxReady{}, err
	}
	doubtful := doubtfulFiles(kept.positions, bundle.Manifest, found.differing)
	if from.unrecorded && (handedFrom != "" || len(doubtful) > 0) { // the following steps may take long, or fail
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

// startFresh creates the sandbox from the image of the session's agent.
func (g *restores) startFresh(ctx context.Context, in SandboxRequest) (SandboxReady, *sandbox.Sandbox, error) {
	image, err := g.image(ctx, in.SessionID)
	if err != nil {
		return SandboxReady{}, nil, err
	}
	return g.start(ctx, in, origin{image: image})
}

// recordRestored records that a restored sandbox is ready, the proof of a bundle unless it is empty, and the requested
// transition and claim. If the transition cannot be recorded, the workflow records it and claims the prompt.
func (g *restores) recordRestored(ctx context.Context, in SandboxRequest, ready *SandboxReady, proved string) error {
	if in.Then != nil {
		t := *in.Then
		t.Generation, t.Receipt, t.At = ready.Generation, ready.Receipt, time.Now().UTC()
		row := session.SandboxRow{Generation: ready.Generation, SandboxID: ready.SandboxID, Health: session.SandboxReady, Deadline: ready.Deadline}
		var claim run.Proposal
		if in.Claim != nil && !g.Shutdown.isSet() {
			claim = *in.Claim
		}
		verdict, err := g.store.TransitionRecordReady(ctx, t, row, proved, claim)
		if err == nil {
			ready.Recorded = t.At
			if verdict.Granted {
				ready.Claimed = &verdict
			}
			return nil
		}
		g.Logger.WarnContext(ctx, "could not record that a session is restored; its workflow retries",
			slog.String("session_id", in.SessionID), slog.Any("error", err))
		if err := g.recordReady(ctx, in, *ready); err != nil {
			return err
		}
		if err := g.claimedBefore(ctx, in, ready); err != nil { // only the answer may have been lost
			return err
		}
	}
	if proved == "" {
		return nil
	}
	return stored(g.store.BundleProve(ctx, proved))
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

// startFromSnapshot is start from a snapshot. If the snapshot may be the cause of a failure,
// another create after a pause confirms it.
func (g *restores) startFromSnapshot(ctx context.Context, in SandboxRequest, from origin) (SandboxReady, *sandbox.Sandbox, error) {
	var failed int64
	var exists bool
	var resolveErr error // matters only if the snapshot is used
	err := inParallel(
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
