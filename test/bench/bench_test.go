package main

import (
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestAShortRunFindsEveryFigure measures little of everything and looks that the document has it.
func TestAShortRunFindsEveryFigure(t *testing.T) {
	t.Parallel()
	bin, err := filepath.Abs(filepath.Join("..", "..", "bin"))
	require.NoError(t, err)
	require.FileExists(t, filepath.Join(bin, "overwinter"), "the programs are not built: run make build")
	o := options{
		Bin:   bin,
		Limit: time.Minute, Rounds: 4, Sleeps: 1, Starts: 1, Sessions: 4, Pause: 20 * time.Millisecond, Calm: 50 * time.Millisecond, Burst: 50,
	}
	r, err := measure(t.Context(), o, testWriter{t})
	require.NoError(t, err)

	require.Equal(t, 1, r.cold.n())
	require.Equal(t, 1, r.warm.n())
	require.Positive(t, r.cold.least())
	require.Positive(t, r.warm.least())
	require.Contains(t, r.machine.postgres, "synchronous_commit on")
	require.Len(t, r.loads, 3)
	for i, sessions := range []int{1, o.Sessions, o.Sessions} {
		l := r.loads[i]
		require.Equal(t, sessions, l.sessions)
		for _, f := range append(append(l.figures(), l.sideFigures()...), l.bareFigures()...) {
			require.Positive(t, f.samples.least(), f.name)
			if f.floor != nil {
				require.Positive(t, f.floor.least(), f.floorName)
			}
		}
		require.Equal(t, o.Rounds, l.prompts.heard.n())
		require.Equal(t, o.Rounds, l.floors.exec.n())
		require.Equal(t, o.Sleeps, l.sleeps.hibernated.n())
		require.Positive(t, l.usage.system)
	}
	require.Positive(t, r.burst.rate())
	require.Positive(t, r.burst.rows)

	document := r.markdown()
	require.Empty(t, byHand(document), "what is measured has no such line of its own")
	for _, want := range []string{"With 1 session at work", "With 4 sessions at work, a word every 20ms each", "prompt → 202", "commit + signal", "events/s", "empty data directory"} {
		require.Contains(t, document, want)
	}
	require.NotContains(t, document, "NaN")
	require.NotContains(t, document, "Inf")
}

func TestWhatPeopleWroteIsKept(t *testing.T) {
	t.Parallel()
	require.Equal(t, "\n---\n\nwhy\n\n---\nand how\n", byHand("# Benchmarks\n\n| a |\n|---|\n\n---\n\nwhy\n\n---\nand how\n"))
	require.Empty(t, byHand("# Benchmarks\n"))
	require.Empty(t, byHand(""))
}

func TestQuantilesAreOfTheNearestRank(t *testing.T) {
	t.Parallel()
	var s samples
	require.Zero(t, s.p50())
	for i := range 200 {
		s.add(time.Duration(200 - i))
	}
	require.Equal(t, time.Duration(1), s.least())
	require.Equal(t, time.Duration(100), s.p50())
	require.Equal(t, time.Duration(198), s.p99())
	require.Equal(t, time.Duration(200), s.quantile(1))
	require.Equal(t, []time.Duration{4, 6}, sum(&samples{values: []time.Duration{1, 2}}, &samples{values: []time.Duration{3, 4}}).values)
}

func TestGoalsCanBeMissed(t *testing.T) {
	t.Parallel()
	of := func(d time.Duration) *samples { return &samples{values: []time.Duration{d}} }
	require.True(t, within(2).met(of(20), of(10)))
	require.False(t, within(2).met(of(21), of(10)))
	require.True(t, above(5).met(of(15), of(10)))
	require.False(t, above(5).met(of(16), of(10)))
	require.True(t, atMost(5, 9).met(of(5), nil))
	require.False(t, atMost(5, 9).met(of(6), nil))
	require.False(t, atMost(9, 5).met(of(6), nil))
}

// testWriter sends what the bench says about its progress to the test's log.
type testWriter struct{ t *testing.T }

var _ io.Writer = testWriter{}

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Helper()
	w.t.Log(strings.TrimSpace(string(p)))
	return len(p), nil
}
