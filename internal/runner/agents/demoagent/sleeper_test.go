package demoagent

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestSleepLastsItsTimeAndEndsWithItsTurn(t *testing.T) {
	t.Parallel()
	kernel := newSleeper()
	defer kernel.close()
	require.NotNil(t, kernel.timer)
	for name, s := range map[string]*sleeper{"the kernel's timer": kernel, "the runtime's timer": {}} {
		const d = 20 * time.Millisecond
		for range 3 {
			ctx, abort := context.WithCancel(t.Context())
			began := time.Now()
			require.True(t, s.sleep(ctx, d), name)
			require.GreaterOrEqual(t, time.Since(began), d, name)
			time.AfterFunc(time.Millisecond, abort)
			require.False(t, s.sleep(ctx, time.Hour), name)
			require.False(t, s.sleep(ctx, time.Hour), name)
		}
	}
}
