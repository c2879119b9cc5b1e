package session_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/overwinter-dev/overwinter/internal/session"
)

func TestStopSupersedesEveryCommand(t *testing.T) {
	t.Parallel()
	for _, status := range session.States {
		var all []session.Command
		for _, kind := range session.CommandKinds {
			if kind != session.CommandStop {
				all = append(all, session.Command{Kind: kind})
			}
		}
		v := session.Judge(session.CommandStop, session.Pending{Status: status, Commands: all})
		require.Nil(t, v.Refused)
		if status.Final() {
			require.True(t, v.Already)
			continue
		}
		require.False(t, v.Already)
		require.Len(t, v.Supersedes, len(all))
		for _, kind := range session.CommandKinds {
			v := session.Judge(kind, session.Pending{Status: status, RunID: "run", Commands: []session.Command{{Kind: session.CommandStop}}})
			require.Empty(t, v.Supersedes)
			require.Equal(t, kind != session.CommandStop, v.Refused != nil, "%s in %s", kind, status)
		}
	}
}

func TestWakeAndHibernateSupersedeEachOther(t *testing.T) {
	t.Parallel()
	pending := func(kinds ...session.CommandKind) (out []session.Command) {
		for _, kind := range kinds {
			out = append(out, session.Command{Kind: kind})
		}
		return out
	}
	for _, status := range []session.State{session.Running, session.Restoring} {
		v := session.Judge(session.CommandWake, session.Pending{Status: status, Commands: pending(session.CommandHibernate, session.CommandSync)})
		require.Equal(t, session.CommandVerdict{Already: true, Supersedes: []session.CommandKind{session.CommandHibernate}}, v)
		v = session.Judge(session.CommandRestart, session.Pending{Status: status, Commands: pending(session.CommandHibernate, session.CommandDrop)})
		require.Equal(t, session.CommandVerdict{Supersedes: []session.CommandKind{session.CommandHibernate, session.CommandDrop}}, v)
	}
	for _, status := range []session.State{session.Hibernating, session.Hibernated} {
		v := session.Judge(session.CommandHibernate, session.Pending{Status: status, Commands: pending(session.CommandWake)})
		require.Equal(t, session.CommandVerdict{Already: true, Supersedes: []session.CommandKind{session.CommandWake}}, v)
		v = session.Judge(session.CommandWake, session.Pending{Status: status})
		require.Equal(t, session.CommandVerdict{}, v)
	}
}

// For any accepted commands and events, every command ends at the latest with the session, and a
// session that moves to another sandbox has no pending command to sleep.
func TestEveryCommandEnds(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		state := rapid.SampledFrom(session.States).Draw(t, "state")
		event := rapid.SampledFrom(session.Events).Draw(t, "event")
		to, err := session.Next(state, event)
		if err != nil {
			t.Skip("not in the table")
		}
		step := session.Transition{From: state, To: to, Event: event, Reason: rapid.SampledFrom([]string{
			"", session.ReasonRequested, session.ReasonIdle, session.ReasonLost, session.ReasonLifetime, session.ReasonRestart,
			session.ReasonDropped,
		}).Draw(t, "reason")}
		var ended []session.Command
		for _, kind := range session.CommandKinds {
			c := session.Command{Kind: kind}
			status, _ := c.EndedBy(step)
			require.True(t, slices.Contains([]session.CommandStatus{session.CommandPending, session.CommandApplied, session.CommandSuperseded, session.CommandRefused}, status))
			if to.Final() {
				require.NotEqual(t, session.CommandPending, status, "%s survives its session", kind)
			}
			if kind == session.CommandStop {
				require.Equal(t, to.Final(), status == session.CommandApplied, "a stop ends with the session alone")
			}
			if status != session.CommandPending && rapid.Bool().Draw(t, "was pending") {
				ended = append(ended, c)
			}
		}
		if step.Moves(ended) {
			require.Equal(t, session.Hibernating, to)
			require.False(t, slices.ContainsFunc(ended, func(c session.Command) bool {
				return c.Kind == session.CommandHibernate || c.Kind == session.CommandDrop
			}))
		}
	})
}

func TestAbortAppliesToOneRun(t *testing.T) {
	t.Parallel()
	abort := session.Command{Kind: session.CommandAbort}
	status, reason := abort.EndedByRun(session.OutcomeCancelled, session.ReasonAborted)
	require.Equal(t, session.CommandApplied, status)
	require.Empty(t, reason)
	status, reason = abort.EndedByRun(session.OutcomeCompleted, "")
	require.Equal(t, session.CommandSuperseded, status)
	require.Equal(t, session.ReasonRunEnded, reason)
}
