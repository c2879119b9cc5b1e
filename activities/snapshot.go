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

// snapshot makes a snapshot of a session's sandbox and records it. The intent is recorded first, so
// that an image whose id is lost can be found. failed classifies an error of the sandbox.
func (g *bundles) snapshot(ctx context.Context, sessionID string, generation int64, sb *sandbox.Sandbox, failed func(context.Context, *sandbox.Sandbox, error) error) (string, error) {
	intent := image.Intent{ID: session.NewID("img_"), SessionID: sessionID, Generation: generation, Source: sb.ID(), Lifetime: snapshotLifetime}
	if err := g.store.ImageIntend(ctx, intent); err != nil {
		return "", stored(err)
	}
	began := time.Now()
	defer await(ctx, "the provider to make the snapshot")()
	image, err := sb.Snapshot(ctx, sandbox.SnapshotSpec{Timeout: g.SnapshotTimeout, Lifetime: snapshotLifetime})
	g.Metrics.SnapshotMade(time.Since(began), err)
	if err != nil {
		switch sandbox.CodeOf(err) {
		case sandbox.Timeout, sandbox.Unavailable: // the image may still be made
		default:
			if endErr := g.store.ImageIntentEnd(ctx, intent.ID); endErr != nil {
				g.Logger.WarnContext(ctx, "the intent of a snapshot that failed stays recorded",
					slog.String("session_id", sessionID), slog.Any("error", endErr))
			}
		}
		return "", failed(ctx, sb, fmt.Errorf("snapshot: %w", err))
	}
	return image, stored(g.store.SnapshotMade(ctx, intent, image))
}
