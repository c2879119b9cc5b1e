package activities_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// slowImage takes longer than a session waits before it reports that.
type slowImage struct{ preparer }

func (p slowImage) Prepare(ctx context.Context, agent string) (string, error) {
	timer := time.NewTimer(1500 * time.Millisecond)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return "", ctx.Err()
	}
	return p.preparer.Prepare(ctx, agent)
}

func TestAnImageThatTakesLongIsAStepOfTheStart(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.create(t)
	require.Empty(t, b.stages(t), "an image that exists is no step")

	b = setup(t)
	b.config.Image = slowImage{runnerImage(b.provider)}
	b.build()
	b.create(t)
	require.Equal(t, []string{"image started", "image completed"}, b.stages(t))
}
