package activities

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/overwinter-dev/overwinter/internal/image"
	"github.com/overwinter-dev/overwinter/internal/sandbox"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// snapshotIntent returns the intent of a snapshot. It is recorded first, so that an image whose id is lost can be found.
func snapshotIntent(sessionID string, generation int64, sb *sandbox.Sandbox) image.Intent {
	return image.Intent{ID: session.NewID("img_"), SessionID: sessionID, Generation: generation, Source: sb.ID(), Lifetime: snapshotLifetime}
}

// endIntent removes the intent of a snapshot that was not made.
func (g *bundles) endIntent(ctx context.Context, intent image.Intent) {
	if err := g.store.ImageIntentEnd(ctx, intent.ID); err != nil {
		g.Logger.WarnContext(ctx, "the intent of a snapshot that failed stays recorded",
			slog.String("session_id", intent.SessionID), slog.Any("error", err))
	}
}

// snapshot records the intent of a snapshot, and makes it.
func (g *bundles) snapshot(ctx context.Context, sessionID string, generation int64, sb *sandbox.Sandbox, failed func(context.Context, *sandbox.Sandbox, error) error) (string, error) {
	intent := snapshotIntent(sessionID, generation, sb)
	if err := g.store.ImageIntend(ctx, intent); err != nil {
		return "", stored(err)
	}
	return g.snapshotFor(ctx, intent, sb, failed)
}

// snapshotFor makes the snapshot of a recorded intent, records it, and checks that the provider has it. failed classifies an
// error of the sandbox.
func (g *bundles) snapshotFor(ctx context.Context, intent image.Intent, sb *sandbox.Sandbox, failed func(context.Context, *sandbox.Sandbox, error) error) (string, error) {
	began := time.Now()
	defer await(ctx, "the provider to make the snapshot")()
	image, err := sb.Snapshot(ctx, sandbox.SnapshotSpec{Timeout: g.SnapshotTimeout, Lifetime: snapshotLifetime})
	g.Metrics.SnapshotMade(time.Since(began), err)
	if err != nil {
		switch sandbox.CodeOf(err) {
		case sandbox.Timeout, sandbox.Unavailable: // the image may still be made
		default:
			g.endIntent(ctx, intent)
		}
		return "", failed(ctx, sb, fmt.Errorf("snapshot: %w", err))
	}
	return image, inParallel(
		func() error { return stored(g.store.SnapshotMade(ctx, intent, image)) },
		func() error { return g.made(ctx, image) },
	)
}

// made returns an error if the provider does not have an image that it has just made.
func (g *bundles) made(ctx context.Context, image string) error {
	exists, err := g.resolves(ctx, image)
	if err == nil && !exists {
		err = fmt.Errorf("snapshot %s was made and does not resolve", image)
	}
	return err
}
