package session_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/overwinter-dev/overwinter/internal/session"
)

// life repeats the table, according to the diagram in doc.go, so that a change of one requires a
// change of the other.
var life = map[session.State]map[session.Event]session.State{
	session.Initializing: {
		session.EventReady: session.Running,
		session.EventFail:  session.Error,
		session.EventStop:  session.Terminated,
	},
	session.Running: {
		session.EventHibernate: session.Hibernating,
		session.EventFail:      session.Error,
		session.EventStop:      session.Terminated,
	},
	session.Hibernating: {
		session.EventSaved:     session.Hibernated,
		session.EventFail:      session.Error,
		session.EventStop:      session.Terminated,
		session.EventAbandoned: session.Terminated,
	},
	session.Hibernated: {
		session.EventWake: session.Restoring,
		session.EventStop: session.Terminated,
	},
	session.Restoring: {
		session.EventReady: session.Running,
		session.EventFail:  session.Error,
		session.EventStop:  session.Terminated,
	},
	session.Error: {
		session.EventRecover: session.Restoring,
		session.EventStop:    session.Terminated,
	},
	session.Terminated: {},
}

func TestNextKnowsEveryStateAndEvent(t *testing.T) {
	t.Parallel()
	require.Len(t, session.States, 7)
	require.Len(t, session.Events, 8)
	for _, from := range session.States {
		for _, event := range session.Events {
			want, legal := life[from][event]
			got, err := session.Next(from, event)
			if legal {
				require.NoError(t, err, "%s on %s", from, event)
				require.Equal(t, want, got, "%s on %s", from, event)
				continue
			}
			var illegal *session.IllegalTransitionError
			require.ErrorAs(t, err, &illegal, "%s on %s", from, event)
			require.Equal(t, &session.IllegalTransitionError{From: from, Event: event}, illegal)
			require.ErrorContains(t, err, string(from))
			require.ErrorContains(t, err, string(event))
			require.Equal(t, from, got, "an illegal event changes nothing")
		}
	}
}

func TestNextRejectsUnknownStateOrEvent(t *testing.T) {
	t.Parallel()
	for _, from := range []session.State{"", "RUNNING", "sleeping"} {
		for _, event := range session.Events {
			_, err := session.Next(from, event)
			require.Error(t, err, "%q on %s", from, event)
		}
	}
	for _, from := range session.States {
		_, err := session.Next(from, "explode")
		require.Error(t, err, from)
	}
}

func TestLegalIsOneStepOfTable(t *testing.T) {
	t.Parallel()
	for _, from := range session.States {
		for _, to := range session.States {
			want := false
			for _, target := range life[from] {
				want = want || target == to
			}
			require.Equal(t, want, session.Legal(from, to), "%s to %s", from, to)
		}
	}
	require.False(t, session.Legal("", session.Running))
}

func TestRandomEventsNeverLeaveTable(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		state := session.Initializing
		terminated := false
		for range rapid.IntRange(0, 60).Draw(t, "events") {
			event := rapid.SampledFrom(session.Events).Draw(t, "event")
			next, err := session.Next(state, event)
			switch {
			case err != nil && next != state:
				t.Fatalf("%s on %s: refused and moved to %s", state, event, next)
			case err == nil && !session.Legal(state, next):
				t.Fatalf("%s on %s: %s is not a step of the table", state, event, next)
			case terminated && err == nil:
				t.Fatalf("%s left terminated for %s", event, next)
			}
			if _, err := session.ParseState(string(next)); err != nil {
				t.Fatal(err)
			}
			state = next
			terminated = state == session.Terminated
			if terminated != state.Final() {
				t.Fatalf("%s: final is %t", state, state.Final())
			}
		}
		// A session can be stopped after any events.
		if end, err := session.Next(state, session.EventStop); !terminated && (err != nil || end != session.Terminated) {
			t.Fatalf("%s cannot be stopped: %v", state, err)
		}
	})
}

func TestEveryStateCanBeReached(t *testing.T) {
	t.Parallel()
	reached := map[session.State]bool{session.Initializing: true}
	for range session.States {
		for from := range reached {
			for _, event := range session.Events {
				if to, err := session.Next(from, event); err == nil {
					reached[to] = true
				}
			}
		}
	}
	for _, s := range session.States {
		require.True(t, reached[s], s)
	}
}

func TestParseStateAcceptsOnlyNames(t *testing.T) {
	t.Parallel()
	for _, s := range session.States {
		got, err := session.ParseState(string(s))
		require.NoError(t, err)
		require.Equal(t, s, got)
	}
	for _, name := range []string{"", "Running", "running ", "gone"} {
		_, err := session.ParseState(name)
		require.Error(t, err, "%q", name)
	}
}

func TestOnlySleepingAndEndedSessionsHaveNoSandbox(t *testing.T) {
	t.Parallel()
	for _, s := range session.States {
		without := s == session.Hibernated || s == session.Terminated
		require.Equal(t, !without, s.HasSandbox(), s)
	}
	require.False(t, session.State("").HasSandbox())
}

func TestPromptEndsWithOutcomeOfRun(t *testing.T) {
	t.Parallel()
	require.False(t, session.PromptQueued.Final())
	require.False(t, session.PromptProcessing.Final())
	for outcome, status := range map[session.Outcome]session.PromptStatus{
		session.OutcomeCompleted: session.PromptCompleted,
		session.OutcomeFailed:    session.PromptFailed,
		session.OutcomeCancelled: session.PromptCancelled,
		session.OutcomeUnknown:   session.PromptUnknown,
	} {
		require.Equal(t, status, outcome.PromptStatus())
		require.True(t, status.Final(), status)
	}
}
