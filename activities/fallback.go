package activities

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/overwinter-dev/overwinter/internal/bundle"
	"github.com/overwinter-dev/overwinter/internal/runner"
	"github.com/overwinter-dev/overwinter/internal/sandbox"
	"github.com/overwinter-dev/overwinter/internal/session"
	"github.com/overwinter-dev/overwinter/internal/turn"
)

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

// unusableError means that no sandbox can be created from a snapshot.
type unusableError struct{ cause error }

func (e *unusableError) Error() string { return e.cause.Error() }

func (e *unusableError) Unwrap() error { return e.cause }

// blamesImage reports whether the image may be the cause of err, an error of a create.
func blamesImage(err error) bool {
	e, ok := errors.AsType[*sandbox.Error](err)
	return ok && (e.Code == sandbox.Gone || e.Code == sandbox.Damaged || e.Code == sandbox.Invalid)
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
