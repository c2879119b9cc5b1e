package workflows_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/overwinter-dev/overwinter/internal/session"
)

// faulty lists the activities that may fail, with the faults of the real activities: a store may be
// unavailable, may have been changed by another workflow run, or may refuse permanently.
var faulty = map[string][]string{
	"BeginRun": stores, "RecordTransition": stores, "OpenSession": stores, "CloseSession": stores, "SettleRun": stores,
	"ReturnRun": stores, "TellProblem": stores, "AnnounceDeadline": stores, "ContinueRun": stores, "RequeuePrompt": stores, "CancelPrompts": stores,
	"TerminateSandbox": stores,
	"ReadWaiting":      stores, "EndCommand": stores, "TakeBack": stores,
	"CreateSandbox": {"passing", "refused", "spent"}, "RestoreSandbox": {"passing", "refused", "spent"},
	"SaveBundle": {"passing", "refused"}, "RescueBundle": {"passing", "refused"},
	"DropSandbox": {"passing", "refused"}, "RevertSession": {"passing", "refused"},
	"FlushSandbox": {"passing"}, "AbortRun": {"passing", "refused"}, "RunTurn": {"passing", "unknown", "refused", "fenced"},
	"RunTurnWhenClaimed": {"passing", "unknown", "refused", "fenced", "full"}, "RestoreClaim": {"passing", "fenced", "refused"}, "RestoreAnswer": {"fenced"},
}

var stores = []string{"passing", "fenced", "refused"}

// TestRandomSessionsKeepInvariants plays random scripts, some with outages of an hour. The
// following must hold for all requests and failures: no prompt starts while the queue is held;
// every step is in the table; at most one sandbox is alive, and none while the session is
// hibernated or terminated; no prompt is delivered twice unless its policy is retry; at most one
// timer is pending; every prompt ends by itself within two minutes of the last fault, unless a
// refusal needs a person; and after a stop every accepted prompt has an outcome. The world checks
// all of these except the last.
func TestRandomSessionsKeepInvariants(t *testing.T) {
	t.Parallel()
	activities := rapid.SampledFrom([]string{
		"BeginRun", "RecordTransition", "OpenSession", "CloseSession", "SettleRun", "ReturnRun", "RequeuePrompt", "TellProblem", "AnnounceDeadline", "ContinueRun",
		"CancelPrompts", "TerminateSandbox", "CreateSandbox", "RestoreSandbox", "SaveBundle", "RescueBundle", "DropSandbox", "RevertSession",
		"FlushSandbox", "AbortRun", "RunTurn", "RunTurnWhenClaimed", "RestoreClaim", "RestoreAnswer", "ReadWaiting", "EndCommand", "TakeBack",
	})
	durations := rapid.SampledFrom([]string{"1ms", "4ms", "7ms", "60ms", "300ms", "1s", "3s", "10s", "40s", "5m", "1h", "25h"})
	rapid.Check(t, func(t *rapid.T) {
		script := &strings.Builder{}
		write := func(format string, args ...any) { fmt.Fprintf(script, format+"\n", args...) }
		write("create%s%s%s%s%s idle=%s lifetime=%s", rapid.SampledFrom([]string{"", " attend=20s", " attend=2s"}).Draw(t, "attend"), rapid.SampledFrom([]string{"", " announce", " announce park=2s expiry=1m", " park=3m expiry=48h"}).Draw(t, "announce"), rapid.SampledFrom([]string{"", "", " signals=old", " signals=each"}).Draw(t, "signals"), rapid.SampledFrom([]string{"", " lazy"}).Draw(t, "lazy"),
			rapid.SampledFrom([]string{"", " records=slow", " records=lost"}).Draw(t, "records"),
			rapid.SampledFrom([]string{"5s", "15m", "48h"}).Draw(t, "idle"),
			rapid.SampledFrom([]string{"1h", "4h", "24h"}).Draw(t, "lifetime"))
		switch late := rapid.SampledFrom([]string{"", "4ms", "2s", "20s", "earlier"}).Draw(t, "late"); late {
		case "":
		case "earlier":
			write("earlier")
		default:
			write("late %s", late)
		}
		prompts := 0
		for range rapid.IntRange(1, 14).Draw(t, "commands") {
			switch command := rapid.SampledFrom([]string{
				"prompt", "prompt", "prompt", "answer", "ring", "wake", "hibernate", "hibernate force", "drop", "drop force", "relocate", "relocate force", "sync", "revert p1", "revert p1 force", "abort", "recover",
				"hold", "release", "promote", "clear", "idle", "report", "kill", "busy", "free", "fail", "fail", "slow", "history 2000", "restart", "freeze",
			}).Draw(t, "command"); command {
			case "prompt":
				prompts++
				write("prompt p%d takes=%s policy=%s%s", prompts, durations.Draw(t, "takes"),
					rapid.SampledFrom([]session.OnUnknown{session.Hold, session.Fail, session.Retry}).Draw(t, "policy"),
					rapid.SampledFrom([]string{"", "", " crashes", " stubborn", " asks"}).Draw(t, "agent"))
			case "answer":
				if prompts > 0 {
					write("answer p%d", rapid.IntRange(1, prompts).Draw(t, "prompt"))
				}
			case "ring":
				if prompts > 0 {
					write("ring p%d", rapid.IntRange(1, prompts).Draw(t, "prompt"))
				}
			case "idle":
				write("idle %s", durations.Draw(t, "idle"))
			case "report":
				write("report %d", rapid.IntRange(0, 4).Draw(t, "generation"))
			case "fail":
				activity := activities.Draw(t, "activity")
				write("fail %s %s times=%d", activity, rapid.SampledFrom(faulty[activity]).Draw(t, "fault"), rapid.SampledFrom([]int{1, 2, 7, 60}).Draw(t, "times"))
			case "slow":
				write("slow %s %s", activities.Draw(t, "activity"), rapid.SampledFrom([]string{"20ms", "2s", "1m"}).Draw(t, "takes"))
			default:
				write("%s", command)
			}
			if rapid.Bool().Draw(t, "pause") {
				write("wait %s\n", durations.Draw(t, "wait"))
			}
		}
		write("\nrelease\ncalm\nwait 2m")
		write("\nsettled\nstop\nwait 3h")

		transcript, c := play(t, script.String())
		w := c.stage.world
		require.Empty(t, w.violations, transcript)
		require.Equal(t, session.Terminated, w.state, transcript)
		for _, p := range w.prompts {
			require.True(t, p.status.Final(), "%s is %s\n%s", p.ID, p.status, transcript)
		}
		require.Empty(t, w.alive(), transcript)
	})
}

// TestOneTimerForManyPrompts checks that prompts do not move the timer, which only fires once
// without an effect.
func TestOneTimerForManyPrompts(t *testing.T) {
	t.Parallel()
	script := &strings.Builder{}
	fmt.Fprintln(script, "create idle=15m lifetime=240h\nwait 10s")
	for i := range 50 {
		fmt.Fprintf(script, "prompt p%d takes=1s\nwait 10s\n", i+1)
	}
	_, c := play(t, script.String())
	require.Empty(t, c.stage.world.violations)
	for _, p := range c.stage.world.prompts {
		require.Equal(t, session.PromptCompleted, p.status)
	}
	require.Equal(t, 1, c.stage.timers.started)
	require.WithinDuration(t, epoch.Add(510*time.Second), c.stage.at, 0)
}

// TestTemporalCostOfPrompt counts the commands of the workflow for one more prompt of an idle
// session. Each command makes one event, but the activity makes three. With the signal and two
// workflow tasks of three events each, a prompt makes 12 events. If a change needs another number,
// update it here and give the reason in the commit message: each event is a write of the workflow's
// state.
func TestTemporalCostOfPrompt(t *testing.T) {
	t.Parallel()
	commands := func(prompts int) map[string]int {
		script := &strings.Builder{}
		fmt.Fprintln(script, "create idle=15m lifetime=240h\nwait 10s")
		for i := range prompts {
			fmt.Fprintf(script, "prompt p%d takes=1s\nwait 10s\n", i+1)
		}
		var counted map[string]int
		synctest.Test(t, func(t *testing.T) {
			_, c := play(t, script.String())
			require.Empty(t, c.stage.world.violations)
			counted = c.stage.commands
		})
		return counted
	}
	before, cost := commands(3), map[string]int{}
	for command, n := range commands(4) {
		if n != before[command] {
			cost[command] = n - before[command]
		}
	}
	require.Equal(t, map[string]int{"side effect": 1, "record BeginRun": 1, "activity RunTurn": 1}, cost)
}

// TestTemporalCostOfHibernation counts the commands of the workflow for one more hibernation and
// wake of a session: each activity is a round trip, and a reader of the session waits for each
// transition that the preceding activity has not recorded.
func TestTemporalCostOfHibernation(t *testing.T) {
	t.Parallel()
	commands := func(times int) map[string]int {
		script := "create idle=15m lifetime=240h\nwait 10s\n" + strings.Repeat("hibernate\nwait 10s\nwake\nwait 10s\n", times)
		var counted map[string]int
		synctest.Test(t, func(t *testing.T) {
			_, c := play(t, script)
			require.Empty(t, c.stage.world.violations)
			counted = c.stage.commands
		})
		return counted
	}
	before, cost := commands(3), map[string]int{}
	for command, n := range commands(4) {
		if n != before[command] && (strings.HasPrefix(command, "activity ") || command == "record RecordTransition") {
			cost[command] = n - before[command]
		}
	}
	require.Equal(t, map[string]int{"activity SaveBundle": 1, "activity RestoreSandbox": 1, "record RecordTransition": 2}, cost)
}

// TestPromptsEndWithinTwoMinutesOfLastFault checks this for outages of any length, whatever they
// interrupted.
func TestPromptsEndWithinTwoMinutesOfLastFault(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"passing", "spent"} {
		for _, outage := range []string{"20s", "1m", "5m", "17m", "1h"} {
			transcript, c := play(t, fmt.Sprintf("create\nfail CreateSandbox %s times=9000\nprompt p1\nwait %s\n\ncalm\nwait 2m\n\nsettled\nwait 1s", kind, outage))
			require.Empty(t, c.stage.world.violations, "%s %s\n%.3000s", kind, outage, transcript)
			require.Equal(t, session.PromptCompleted, c.stage.world.prompt("p1").status)
		}
	}
}
