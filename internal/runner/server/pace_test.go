package server

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/runner"
	"github.com/overwinter-dev/overwinter/internal/runner/journal"
)

// TestAgentWaitsForSilentWorkerForLimitedTime checks that the agent continues after the limit,
// until the worker takes frames again.
func TestAgentWaitsForSilentWorkerForLimitedTime(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		j, err := journal.Create(dir, "run_1", journal.Delivering)
		require.NoError(t, err)
		defer j.Close()
		l := &link{run: "run_1", pace: pace{window: 10}}
		s := &Server{open: j, link: l}
		began := time.Now()
		took := func() time.Duration { return time.Since(began) }
		print := func(lines int) {
			for range lines {
				s.pace(nil)
				_, err := j.Append(runner.Stdout, time.Now(), []byte("line"), false)
				require.NoError(t, err)
			}
		}
		print(10)
		require.Zero(t, took())
		print(1)
		require.Equal(t, maxPause, took())
		print(100)
		require.Equal(t, maxPause, took(), "the worker takes nothing")

		s.taken(l, &runner.Taken{Next: 111, Window: 10})
		print(10)
		require.Equal(t, maxPause, took(), "the worker is back")
		time.AfterFunc(maxPause-time.Second, func() { s.taken(l, &runner.Taken{Next: 116, Window: 10}) })
		time.AfterFunc(2*maxPause-2*time.Second, func() { s.taken(l, &runner.Taken{Next: 121, Window: 10}) })
		print(6)
		require.Equal(t, 3*maxPause-2*time.Second, took(), "the agent waits again after each batch that the worker takes")

		ending := make(chan struct{})
		close(ending)
		print(4)
		s.pace(ending)
		require.Equal(t, 3*maxPause-2*time.Second, took(), "an agent that ends waits for no one")
	})
}
