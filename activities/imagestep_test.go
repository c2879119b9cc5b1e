package activities_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/eventlog"
)

// slowImage becomes ready once the session has reported that it waits for the image.
type slowImage struct {
	preparer
	reported func() bool
}

func (p slowImage) Prepare(ctx context.Context, agent string) (string, error) {
	for !p.reported() {
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
	return p.preparer.Prepare(ctx, agent)
}

func TestSlowImageIsShownAsStartStep(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.create(t)
	require.Empty(t, b.stages(t), "an image that exists is not a step")

	b = setup(t)
	b.config.Image = slowImage{runnerImage(b.provider), func() bool {
		events, err := b.db.EventsPage(b.ctx, b.id, 0, 100)
		return err == nil && slices.ContainsFunc(events, func(e eventlog.Event) bool { return e.Type == "setup" })
	}}
	b.config.ImageSoon = time.Millisecond
	b.build()
	b.create(t)
	require.Equal(t, []string{"image started", "image completed"}, b.stages(t))
}
