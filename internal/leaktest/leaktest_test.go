package leaktest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

//nolint:paralleltest // goroutines of other tests would be found
func TestLateEndIsNoLeak(t *testing.T) {
	go func() { <-time.After(time.Second) }() // goleak alone times out before that
	require.NoError(t, Find())
}

//nolint:paralleltest // as above
func TestUnfinishedGoroutineIsLeak(t *testing.T) {
	end := make(chan struct{})
	go func() { <-end }()
	require.ErrorContains(t, find(time.Second), "TestUnfinishedGoroutineIsLeak")
	close(end)
	require.NoError(t, Find())
}
