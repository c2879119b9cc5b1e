package turn_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/turn"
)

// TestGreetingOpensLink checks that an attempt uses the link that its greeting has opened, without
// another hello, and never one that was opened for something else.
func TestGreetingOpensLink(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		greet            func(st *stage, in turn.Request) *turn.Greeting
		hellos, attaches int64 // after two turns
	}{
		"without a greeting": {
			greet:  func(*stage, turn.Request) *turn.Greeting { return nil },
			hellos: 2, attaches: 1,
		},
		"for the same run": {
			greet:  func(st *stage, in turn.Request) *turn.Greeting { return st.executor.Greet(t.Context(), in) },
			hellos: 2, attaches: 1,
		},
		"for another run": {
			greet: func(st *stage, in turn.Request) *turn.Greeting {
				in.RunID = "run_0"
				return st.executor.Greet(t.Context(), in)
			},
			hellos: 3, attaches: 2,
		},
		"for another position": {
			greet: func(st *stage, in turn.Request) *turn.Greeting {
				in.Start.Files.Seq = 7
				return st.executor.Greet(t.Context(), in)
			},
			hellos: 3, attaches: 2,
		},
		"abandoned": {
			greet: func(st *stage, in turn.Request) *turn.Greeting {
				g := st.executor.Greet(t.Context(), in)
				require.Eventually(t, func() bool { return st.hellos.Load() == 2 }, waitLimit, time.Millisecond)
				g.Abandon()
				return nil
			},
			hellos: 3, attaches: 2,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			st := setup(t, script{frames: []string{says("one"), endsTurn}})
			first := st.take(t)
			first.Greeting = st.executor.Greet(t.Context(), first) // no link is kept yet
			_, err := st.executor.Run(t.Context(), first, &progress{})
			require.NoError(t, err)
			require.EqualValues(t, 1, st.attaches.Load())

			second := st.take(t)
			second.Greeting = c.greet(st, second)
			result, err := st.executor.Run(t.Context(), second, &progress{})
			require.NoError(t, err)
			require.NotNil(t, result.End)
			require.Equal(t, [2]int64{c.hellos, c.attaches}, [2]int64{st.hellos.Load(), st.attaches.Load()}, "hellos and execs")
		})
	}
}

// TestGreetingEndsWithItsOwner checks that an unanswered greeting delays neither its owner nor an
// attempt that is cancelled.
func TestGreetingEndsWithItsOwner(t *testing.T) {
	t.Parallel()
	silent := make(chan struct{})
	st := setup(t, script{frames: []string{says("one"), endsTurn}, hello: func(n int64) {
		if n > 1 {
			<-silent
		}
	}})
	defer close(silent)
	_, err := st.executor.Run(t.Context(), st.take(t), &progress{})
	require.NoError(t, err)
	in := st.take(t)
	in.Greeting = st.executor.Greet(t.Context(), in)
	require.Eventually(t, func() bool { return st.hellos.Load() == 2 }, waitLimit, time.Millisecond)
	require.False(t, in.Greeting.Answered())
	in.Greeting.Abandon()
	in.Greeting.Abandon()
	require.False(t, in.Greeting.Answered())
	_, err = st.executor.Run(t.Context(), in, &progress{})
	require.ErrorContains(t, err, "context canceled", "a hello may be on its way")
}

// TestUnusedGreetingIsClosed checks that an attempt that fails before it attaches leaves no link open.
func TestUnusedGreetingIsClosed(t *testing.T) {
	t.Parallel()
	st := setup(t, script{frames: []string{says("one"), endsTurn}})
	_, err := st.executor.Run(t.Context(), st.take(t), &progress{})
	require.NoError(t, err)
	in := st.take(t)
	require.True(t, in.Greeting.Answered(), "there is none")
	in.Greeting = st.executor.Greet(t.Context(), in)
	require.Eventually(t, in.Greeting.Answered, waitLimit, time.Millisecond)
	in.Start.Agent = "unknown"
	_, err = st.executor.Run(t.Context(), in, &progress{})
	require.Error(t, err)
	require.Eventually(t, func() bool { return st.links.Load() == 0 }, waitLimit, time.Millisecond)
}

// TestGreetingWithoutTokenHidesNoLink checks that an attempt that can open its link does so, although its
// greeting could not be sent.
func TestGreetingWithoutTokenHidesNoLink(t *testing.T) {
	t.Parallel()
	st := setup(t, script{frames: []string{says("one"), endsTurn}})
	_, err := st.executor.Run(t.Context(), st.take(t), &progress{})
	require.NoError(t, err)
	in := st.take(t)
	token := st.executor.Token
	st.executor.Token = func(context.Context, string, int64) (string, error) { return "", errors.New("no answer") }
	in.Greeting = st.executor.Greet(t.Context(), in)
	require.Eventually(t, in.Greeting.Answered, waitLimit, time.Millisecond)
	st.executor.Token = token
	_, err = st.executor.Run(t.Context(), in, &progress{})
	require.NoError(t, err)
}
