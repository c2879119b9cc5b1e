package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/memorytest"
)

func TestMain(m *testing.M) {
	playRole()
	os.Exit(runInMemory(m))
}

// runInMemory runs the tests with the data of their systems in memory, if there is room.
func runInMemory(m *testing.M) int {
	dir, err := os.MkdirTemp(memorytest.Executable(), "owbench")
	if err == nil {
		defer os.RemoveAll(dir)
		err = errors.Join(os.Chmod(dir, 0o755), os.Setenv("TMPDIR", dir)) // Postgres may have another user
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// little returns options with which every part is short.
func little(t *testing.T) options {
	t.Helper()
	bin, err := filepath.Abs(filepath.Join("..", "bin"))
	require.NoError(t, err)
	require.FileExists(t, filepath.Join(bin, "overwinter"), "the programs are not built: run make build")
	return options{
		Bin: bin, Limit: time.Minute, Rounds: 4, Sleeps: 1, Starts: 1, Sessions: 4, Pause: 20 * time.Millisecond,
		Burst: 50, Window: time.Second, Readers: 5, Sleepers: 1000, Idle: time.Second, Files: []int{100}, Transfer: 4, LogRows: 6400, Open: 20, Streams: 4,
	}
}

// TestShortRunFindsEveryFigure runs the parts that need no agent briefly, and requires each figure
// and floor to be positive.
func TestShortRunFindsEveryFigure(t *testing.T) {
	t.Parallel()
	o := little(t)
	o.Only = []string{"start", "turn", "words", "burst", "readers", "protocols", "overload", "workspaces", "log", "network", "worker", "sleepers"}
	chosen, err := o.parts()
	require.NoError(t, err)
	require.Len(t, chosen, len(o.Only))
	r, err := measure(t.Context(), o, chosen, testWriter{t})
	require.NoError(t, err)
	require.Contains(t, r.machine.postgres, "synchronous_commit on")
	require.Len(t, r.sections, len(o.Only))
	for _, s := range r.sections {
		require.Empty(t, s.failed, s.part)
		require.NotEmpty(t, s.rows, s.part)
		for _, row := range s.rows {
			if s.part == "sleepers" && row.skipped != "" { // a list that this version does not offer
				continue
			}
			require.Empty(t, row.skipped, "%s: %s", s.part, row.name)
			require.NotZero(t, row.figure.n, "%s: %s", s.part, row.name)
			if row.floorName != "" && s.part != "sleepers" { // an idle system may use no processor time for a moment
				require.Positive(t, row.floor.p50, "%s: floor of %s", s.part, row.name)
			}
		}
	}

	document := r.markdown()
	require.Empty(t, handwritten(document), "the written part has no ruled line")
	for _, want := range []string{"prompt → 202", "commit + signal", "words delivered", "empty data directory", "CPU per word, whole system", "history events per turn"} {
		require.Contains(t, document, want)
	}
	require.NotContains(t, document, "NaN")
	require.NotContains(t, document, "Inf")
}

func TestFailedPartDoesNotStopOthers(t *testing.T) {
	t.Parallel()
	var ran bool
	r, err := measure(t.Context(), options{}, []part{
		{"first", "fails", func(context.Context, *bench, *section) error { return errors.New("no luck\nat all") }},
		{"second", "works", func(_ context.Context, _ *bench, s *section) error {
			ran = true
			s.add("figure", number(7, count), atMost(number(6, count)))
			s.skip("other", "not installed", atMost(number(6, count)))
			return nil
		}},
	}, io.Discard)
	require.NoError(t, err)
	require.True(t, ran)
	document := r.markdown()
	require.Contains(t, document, "**Not finished**: no luck at all")
	require.Contains(t, document, "| second | figure | 7.00 |  |  | ≤ 6.00 | **no** |")
	require.Contains(t, document, "| other | 0 | | | not measured: not installed | | | | ≤ 6.00 | not measured |")
}

func TestPartsAreChosenByName(t *testing.T) {
	t.Parallel()
	all, err := options{}.parts()
	require.NoError(t, err)
	require.Len(t, all, len(parts))
	one, err := options{Only: []string{"turn"}}.parts()
	require.NoError(t, err)
	require.Len(t, one, 1)
	rest, err := options{Skip: []string{"turn"}}.parts()
	require.NoError(t, err)
	require.Len(t, rest, len(parts)-1)
	_, err = options{Only: []string{"turns"}}.parts()
	require.ErrorContains(t, err, "no such part: turns")
}

func TestHandwrittenTextIsKept(t *testing.T) {
	t.Parallel()
	require.Equal(t, "\n---\n\nwhy\n\n---\nand how\n", handwritten("# Benchmarks\n\n| a |\n|---|\n\n---\n\nwhy\n\n---\nand how\n"))
	require.Empty(t, handwritten("# Benchmarks\n"))
	require.Empty(t, handwritten(""))
}

func TestQuantilesUseNearestRank(t *testing.T) {
	t.Parallel()
	var s samples
	require.Zero(t, s.p50())
	for i := range 200 {
		s.add(time.Duration(200 - i))
	}
	require.Equal(t, time.Duration(100), s.p50())
	require.Equal(t, time.Duration(198), s.p99())
	require.Equal(t, time.Duration(1), s.quantile(0))
	require.Equal(t, time.Duration(200), s.quantile(1))
	require.Equal(t, []time.Duration{4, 6}, sum(&samples{values: []time.Duration{1, 2}}, &samples{values: []time.Duration{3, 4}}).values)
}

func TestGoalsCanBeMissed(t *testing.T) {
	t.Parallel()
	of := func(p50, p99 float64) value { return value{n: 1, p50: p50, p99: p99, distributed: true} }
	for name, c := range map[string]struct {
		goal          goal
		met, missed   value
		floor         value
		withoutAFloor bool // whether the goal can be met without one
	}{
		"within":     {goal: within(2), met: of(20, 99), missed: of(21, 21), floor: of(10, 10)},
		"both":       {goal: withinBoth(2), met: of(20, 20), missed: of(20, 21), floor: of(10, 10)},
		"reaches":    {goal: reaches(0.7), met: of(7, 0), missed: of(6.9, 0), floor: of(10, 10)},
		"above":      {goal: above(5 * time.Second), met: of(15, 0), missed: of(16, 0), floor: of(10, 10)},
		"exceeds by": {goal: exceedsBy(number(0.02, cores)), met: of(0.05, 0), missed: of(0.06, 0), floor: of(0.035, 0)},
		"quantiles":  {goal: quantiles(time.Second, 2*time.Second), met: of(1, 2), missed: of(1, 3), withoutAFloor: true},
		"at most":    {goal: atMost(number(3, count)), met: of(3, 9), missed: of(4, 0), withoutAFloor: true},
		"at least":   {goal: atLeast(number(3, count)), met: of(3, 0), missed: of(2, 0), withoutAFloor: true},
	} {
		require.True(t, c.goal.met(c.met, c.floor), name)
		require.False(t, c.goal.met(c.missed, c.floor), name)
		require.Equal(t, c.withoutAFloor, c.goal.met(c.met, none), "%s without a floor", name)
	}
}

// TestProcessesBelongToComponents uses the process table of a system with one sandbox, in which an
// agent runs a tool.
func TestProcessesBelongToComponents(t *testing.T) {
	t.Parallel()
	table := processes{
		10: {parent: 1, argv: []string{"/x/overwinter", "dev"}},
		11: {parent: 10, argv: []string{"/x/overwinter", "api"}},
		12: {parent: 10, argv: []string{"/x/overwinter", "worker"}},
		13: {parent: 10, argv: []string{"/x/overwinter", "local-modal"}},
		14: {parent: 10, argv: []string{"/x/overwinter-temporal", "start"}},
		15: {parent: 10, argv: []string{"/usr/lib/postgresql/15/bin/postgres", "-D", "x"}},
		16: {parent: 15, argv: []string{"postgres: walwriter"}},
		20: {parent: 13, argv: []string{"overwinter-sandbox-init"}},
		21: {parent: 20, argv: []string{"/overwinter/bin/overwinter-runner", "serve"}},
		22: {parent: 20, argv: []string{"/overwinter/bin/overwinter-runner", "link"}},
		23: {parent: 21, argv: []string{"/overwinter/bin/overwinter-runner", "demo-agent"}},
		24: {parent: 23, argv: []string{"sh", "-c", "true"}},
		99: {parent: 1, argv: []string{"cron"}},
	}
	for pid, want := range map[int]component{
		10: supervisorCPU, 11: apiCPU, 12: workerCPU, 13: localModalCPU, 14: temporalCPU, 15: postgresCPU, 16: postgresCPU, 20: localModalCPU,
		21: runnerCPU, 22: runnerCPU, 23: agentCPU, 24: agentCPU, 99: "",
	} {
		require.Equal(t, want, table.component(pid, 10), "process %d", pid)
	}
	require.Equal(t, 11, table.child(apiCPU, 10))
}

// testWriter writes the bench's progress to the test's log.
type testWriter struct{ t *testing.T }

var _ io.Writer = testWriter{}

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Helper()
	w.t.Log(strings.TrimSpace(string(p)))
	return len(p), nil
}
