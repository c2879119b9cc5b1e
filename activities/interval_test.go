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
