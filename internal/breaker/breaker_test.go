package breaker_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/breaker"
)

var noon = time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)

// opened returns a breaker that the starts f0 to f4 have opened at noon.
func opened(t *testing.T) *breaker.Breaker {
	t.Helper()
	b := &breaker.Breaker{}
	for n := range breaker.Threshold {
		ok, _ := b.Try(fmt.Sprint("f", n), noon)
		require.True(t, ok, "it is closed")
		require.Equal(t, n == breaker.Threshold-1, b.Fail(fmt.Sprint("f", n), "no capacity", noon))
	}
	require.True(t, b.Open())
	return b
}

func TestBreakerOpensAfterConsecutiveFailures(t *testing.T) {
	t.Parallel()
	b := opened(t)
	require.Equal(t, &breaker.Wait{Since: noon, Until: noon.Add(breaker.Pause), Failures: breaker.Threshold, Reason: "no capacity"}, b.Waits())
	ok, until := b.Try("other", noon.Add(time.Second))
	require.False(t, ok)
	require.Equal(t, noon.Add(breaker.Pause), until)

	rare := &breaker.Breaker{}
	for n := range 3 * breaker.Threshold {
		require.False(t, rare.Fail("f", "", noon.Add(time.Duration(n)*(breaker.Window+time.Second))), "not in a row")
	}
	require.Nil(t, rare.Waits())
}

func TestHalfOpenBreakerTriesOneStartAtTime(t *testing.T) {
	t.Parallel()
	b := opened(t)
	due := noon.Add(breaker.Pause)
	ok, until := b.Try("f4", due)
	require.False(t, ok, "the one that failed last comes after others")
	require.Equal(t, due.Add(breaker.Grace), until)
	ok, _ = b.Try("a", due)
	require.True(t, ok)
	ok, _ = b.Try("a", due.Add(time.Second))
	require.True(t, ok, "its next attempt")
	ok, until = b.Try("b", due.Add(time.Second))
	require.False(t, ok)
	require.Equal(t, due.Add(time.Second+breaker.Look), until)

	ok, _ = b.Try("b", due.Add(time.Second+breaker.Trial))
	require.True(t, ok, "the trial's worker is lost")
	require.False(t, b.Release("a"))
	require.True(t, b.Release("b"))
	ok, _ = b.Try("c", due.Add(time.Second+breaker.Trial))
	require.True(t, ok)
}

func TestFailedTrialsBackOff(t *testing.T) {
	t.Parallel()
	b := opened(t)
	require.False(t, b.Fail("late", "began before", noon.Add(4*time.Second)), "it is not a trial")
	require.Equal(t, noon.Add(breaker.Pause), b.RetryAt)
	var pauses []time.Duration
	for n := range 5 {
		at := b.RetryAt
		start := fmt.Sprint("t", n)
		ok, _ := b.Try(start, at)
		require.True(t, ok)
		require.False(t, b.Fail(start, "still no capacity", at), "it was open")
		pauses = append(pauses, b.RetryAt.Sub(at))
	}
	require.Equal(t, []time.Duration{10 * time.Second, 20 * time.Second, 30 * time.Second, 30 * time.Second, 30 * time.Second}, pauses)
	require.Equal(t, noon, b.OpenedAt)
	require.Equal(t, "still no capacity", b.Reason)
}
