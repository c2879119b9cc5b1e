package checkpoint_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/checkpoint"
)

func TestCheckpointsAreDue(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for _, tt := range []struct {
		policy string
		age    time.Duration
		due    bool
	}{
		{"hibernate", 1000 * time.Hour, false}, {"turn", 0, true}, {"10m", 9 * time.Minute, false}, {"10m", 10 * time.Minute, true}, {"1.5h", 2 * time.Hour, true},
	} {
		c, err := checkpoint.Parse(tt.policy)
		require.NoError(t, err)
		require.Equal(t, tt.due, c.Due(now.Add(-tt.age), now), "%+v", tt)
	}
	first, err := checkpoint.Parse("1h")
	require.NoError(t, err)
	require.True(t, first.Due(time.Time{}, now), "the first one")
	require.False(t, checkpoint.Policy("").Due(time.Time{}, now))
	for _, wrong := range []string{"", "never", "1ms", "169h", "-1h", "Turn"} {
		_, err := checkpoint.Parse(wrong)
		require.Error(t, err, wrong)
	}
}
