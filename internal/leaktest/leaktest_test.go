package leaktest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

//nolint:paralleltest // goroutines of other tests would be found
func TestWhatEndsLateIsNoLeak(t *testing.T) {
	go func() { <-time.After(time.Second) }() // goleak alone times out before that
	require.NoError(t, Find())
}

//nolint:paralleltest // as above
func TestWhatDoesNotEndIsALeak(t *testing.T) {
	end := make(chan struct{})
	go func() { <-end }()
	require.ErrorContains(t, find(time.Second), "TestWhatDoesNotEndIsALeak")
	close(end)
	require.NoError(t, Find())
}
