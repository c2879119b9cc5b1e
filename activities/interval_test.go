package activities

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestHeartbeatsAreSpacedByTimeout(t *testing.T) {
	t.Parallel()
	require.Equal(t, 6*time.Second, heartbeatInterval(18*time.Second)) // of a turn
	for timeout := time.Second; timeout < time.Minute; timeout += time.Second {
		interval := heartbeatInterval(timeout)
		require.LessOrEqual(t, 3*interval, timeout, "one that is lost does not cost the attempt")
		if timeout >= 15*time.Second {
			require.LessOrEqual(t, interval+heartbeatMargin, timeout, "nor does a stall of ten seconds")
		}
	}
}

func TestAttemptsThatBeginTogetherSpreadTheirHeartbeats(t *testing.T) {
	t.Parallel()
	const interval = 6 * time.Second
	thirds := map[time.Duration]int{}
	for range 300 {
		first := firstInterval(interval)
		require.GreaterOrEqual(t, first, interval/2)
		require.LessOrEqual(t, first, interval)
		thirds[min((first-interval/2)/(interval/6), 2)]++
	}
	for third := range time.Duration(3) {
		require.Greater(t, thirds[third], 50, "of 300 in each third of the time")
	}
}
