package child

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestPausesDoubleUntilChildIsHealthy(t *testing.T) {
	t.Parallel()
	var b backoff
	var pauses []string
	for range 8 {
		pauses = append(pauses, b.next(29*time.Second).String())
	}
	require.Equal(t, []string{"200ms", "400ms", "800ms", "1.6s", "3.2s", "6.4s", "10s", "10s"}, pauses)
	require.Equal(t, 200*time.Millisecond, b.next(30*time.Second), "health forgives")
	require.Equal(t, 400*time.Millisecond, b.next(0))
}
