package workflows_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/testsuite"

	"github.com/overwinter-dev/overwinter/internal/session"
)

// mostEvents is the guaranteed bound of the history of one run of a session's workflow.
const mostEvents = 2000

// taskEvents is the number of events of a workflow task: scheduled, started, completed.
const taskEvents = 3

// historyLength estimates an upper bound of the events in a server's history of a run. It assumes a
// separate workflow task for each event that wakes the workflow. TestHistoryIsNoLongerThanAssumed
// compares the estimate with a server.
type historyLength struct {
	counts   bool // count events; otherwise the script sets the length of the history
	env      *testsuite.TestWorkflowEnvironment
	length   int
	versions map[string]bool
	runs     []int // lengths of the histories of all runs; the last one is that of the open run
}

func (h *historyLength) begin(env *testsuite.TestWorkflowEnvironment) {
	h.env, h.length, h.versions = env, 0, map[string]bool{}
	h.runs = append(h.runs, 0)
	h.add(2) // the start and the end
}

func (h *historyLength) add(events int) {
	h.length += events
	h.runs[len(h.runs)-1] = h.length
	if h.counts {
		h.env.SetCurrentHistoryLength(h.length)
	}
}

func (h *historyLength) longest() (longest int) {
	for _, n := range h.runs {
		longest = max(longest, n)
	}
	return longest
}

// TestHistoriesStayShort plays a session of 30 days with 5,000 prompts. Every day has single and
// consecutive prompts, a turn of several hours whose client keeps sending commands, hibernations,
// and an outage of the provider. Once a day the sandbox reaches its deadline.
func TestHistoriesStayShort(t *testing.T) {
	t.Parallel()
	for name, options := range map[string]string{
		"": "", "attended": " attend=20s announce", "attended, signalled one by one": " attend=20s signals=each",
		"records outside of tasks": " records=slow", "a bundle after each turn": " attend=20s" + savesTurns,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			script, prompts := monthOfASession(options)
			require.GreaterOrEqual(t, prompts, 5000)
			synctest.Test(t, func(t *testing.T) {
				_, c := playWith(t, script, func(s *stage) { s.history.counts = true })
				w := c.stage.world
				require.Empty(t, w.violations)
				require.Len(t, w.prompts, prompts)
				completed := 0
				for _, p := range w.prompts {
					require.True(t, p.status.Final(), "%s is %s", p.ID, p.status)
					if p.status == session.PromptCompleted {
						completed++
					}
				}
				require.GreaterOrEqual(t, completed, prompts-60, "all but those that were aborted")
				require.Greater(t, c.stage.at.Sub(epoch), 30*24*time.Hour)
				if strings.Contains(options, savesTurns) {
					require.Greater(t, len(w.bundles), 3600)
				}
				h := c.stage.history
				require.Greater(t, len(h.runs), 5)
				require.LessOrEqual(t, h.longest(), mostEvents, "%v", h.runs)
				t.Logf("%d prompts in %d runs, the longest of %d events", prompts, len(h.runs), h.longest())
			})
		})
	}
}

// savesTurns saves a bundle after each turn that is not followed by another one at once, and
// reverts four prompts a day.
const savesTurns = " saves"

// monthOfASession returns a script and the number of its prompts.
func monthOfASession(options string) (string, int) {
	script, prompts := &strings.Builder{}, 0
	options, saves := strings.CutSuffix(options, savesTurns)
	prompt := func(takes string, n int) {
		for range n {
			prompts++
			fmt.Fprintf(script, "prompt p%d takes=%s\n", prompts, takes)
		}
	}
	fmt.Fprintf(script, "create%s idle=15m lifetime=24h\nwait 10s\n", options)
	for range 30 {
		for range 4 {
			for range 30 {
				prompt("2s", 1)
				if saves { // part of the turn's activity, like the end of the turn
					fmt.Fprintln(script, "wait 3s\nsync")
				}
				fmt.Fprintln(script, "wait 10s")
			}
			if saves {
				fmt.Fprintf(script, "revert p%d\nwait 1m\n", prompts)
			}
			prompt("20s", 10) // they queue
			fmt.Fprintln(script, "wait 40m")
		}
		fmt.Fprintln(script, "fail RestoreSandbox passing times=200\nwake\nwait 30m\ncalm\nwait 1m")
		prompt("3h", 1)
		for range 150 {
			fmt.Fprintln(script, "wait 10s\nidle 15m")
		}
		prompt("1s", 2)
		for range 40 {
			fmt.Fprintln(script, "sync\nwait 15s")
		}
		fmt.Fprintln(script, "wait 5m\nabort\nwait 1m")
		for range 5 {
			prompt("1s", 1)
			fmt.Fprintln(script, "wait 5s\nhibernate\nwait 30s\nwake\nwait 30s")
		}
		fmt.Fprintln(script, "wait 20h")
	}
	return script.String(), prompts
}

// TestHistoryIsNoLongerThanAssumed runs the same prompts on a real server and in the SDK's
// environment, and checks that the lengths that the other tests use are not below the real ones.
func TestHistoryIsNoLongerThanAssumed(t *testing.T) {
	t.Parallel()
	const prompts = 25
	script := &strings.Builder{}
	fmt.Fprintln(script, "create idle=15m\nwait 10s")
	r := setupRecorder(t, "lengths")
	r.start()
	r.reach(session.Running)
	for i := range prompts {
		id := fmt.Sprintf("p%d", i)
		fmt.Fprintf(script, "prompt %s\nwait 10s\n", id)
		r.prompt(id, 10*time.Millisecond, session.Hold)
		r.awaitEnd(id)
		if i%5 == 4 {
			fmt.Fprintln(script, "hibernate\nwait 1m\nwake\nwait 10s")
			r.command(session.CommandHibernate)
			r.reach(session.Hibernated)
			r.command(session.CommandWake)
			r.reach(session.Running)
		}
	}
	fmt.Fprintln(script, "stop\nwait 1m")
	r.command(session.CommandStop)
	require.NoError(t, r.client.GetWorkflow(t.Context(), r.world.id, "").Get(t.Context(), nil))
	require.Empty(t, r.world.violations)
	real := 0
	events := r.client.GetWorkflowHistory(t.Context(), r.world.id, r.first, false, enums.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for events.HasNext() {
		_, err := events.Next()
		require.NoError(t, err)
		real++
	}
	var assumed int
	synctest.Test(t, func(t *testing.T) {
		_, c := playWith(t, script.String(), func(s *stage) { s.history.counts = true })
		require.Equal(t, session.Terminated, c.stage.world.state)
		require.Len(t, c.stage.history.runs, 1)
		assumed = c.stage.history.longest()
	})
	require.GreaterOrEqual(t, assumed, real)
	require.Less(t, assumed, 2*real, "it is an estimate")
	t.Logf("%d events, %d assumed", real, assumed)
}
