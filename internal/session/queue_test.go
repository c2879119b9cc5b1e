package session_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/overwinter-dev/overwinter/internal/session"
)

func prompt(ordinal int64) session.QueuedPrompt {
	return session.QueuedPrompt{ID: fmt.Sprintf("p%d", ordinal), Ordinal: ordinal}
}

func TestPromptsRunByOrdinalNotSignalOrder(t *testing.T) {
	t.Parallel()
	var q session.Queue
	for _, n := range []int64{3, 1, 2} {
		require.True(t, q.Push(prompt(n)))
	}
	require.Equal(t, []string{"p1", "p2", "p3"}, q.IDs())
	for n := int64(1); n <= 3; n++ {
		p, ok := q.Pop()
		require.True(t, ok)
		require.Equal(t, prompt(n), p)
	}
	_, ok := q.Pop()
	require.False(t, ok)
}

func TestDuplicateSignalIsIgnored(t *testing.T) {
	t.Parallel()
	var q session.Queue
	require.True(t, q.Push(prompt(1)))
	require.False(t, q.Push(prompt(1)), "while it waits")
	_, ok := q.Pop()
	require.True(t, ok)
	require.False(t, q.Push(prompt(1)), "when it was taken")
	require.Zero(t, q.Len())
}

func TestRequeueKeepsPosition(t *testing.T) {
	t.Parallel()
	q := session.NewQueue([]session.QueuedPrompt{prompt(2), prompt(1)}, nil)
	p, _ := q.Pop()
	q.Push(prompt(3))
	q.Requeue(p)
	q.Requeue(p)
	require.Equal(t, []string{"p1", "p2", "p3"}, q.IDs())
	require.Empty(t, q.Seen())
}

// TestFirstPromptMatchesRow: it precedes all others, even if it was taken before or is
// queued at another place.
func TestFirstPromptMatchesRow(t *testing.T) {
	t.Parallel()
	q := session.NewQueue([]session.QueuedPrompt{prompt(1), prompt(2), prompt(3)}, nil)
	p, _ := q.Pop()
	q.First(prompt(3))
	q.First(p)
	require.Equal(t, []string{"p1", "p3", "p2"}, q.IDs())
	require.Empty(t, q.Seen())
	promoted := prompt(4)
	promoted.Rank = -1
	require.True(t, q.Push(promoted))
	require.Equal(t, []string{"p4", "p1", "p3", "p2"}, q.IDs())
}

func TestQueueStateSurvivesContinueAsNew(t *testing.T) {
	t.Parallel()
	q := session.NewQueue([]session.QueuedPrompt{prompt(1), prompt(2)}, nil)
	q.Pop()
	next := session.NewQueue([]session.QueuedPrompt{prompt(2)}, q.Seen())
	require.False(t, next.Push(prompt(1)))
	require.Equal(t, []string{"p2"}, next.IDs())
	next.Pop()
	require.Equal(t, []string{"p1"}, q.Seen(), "a copy: what the next run does is its own")
	require.Equal(t, []string{"p1", "p2"}, next.Seen())
}

func TestQueueMemoryIsBounded(t *testing.T) {
	t.Parallel()
	var q session.Queue
	for n := int64(1); n <= 1000; n++ {
		q.Push(prompt(n))
		q.Pop()
	}
	seen := q.Seen()
	require.Len(t, seen, 256)
	require.Equal(t, "p1000", seen[len(seen)-1])
	require.True(t, q.Push(prompt(1)), "forgotten: the row decides")
}

// TestQueueIsSortedSet compares random calls with a model: a map of queued prompts and a set of
// taken ones.
func TestQueueIsSortedSet(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var q session.Queue
		waiting, taken := map[int64]bool{}, map[int64]bool{}
		ordinal := rapid.Int64Range(1, 20) // few, so that they collide, and fewer than seenLimit
		t.Repeat(map[string]func(*rapid.T){
			"push": func(t *rapid.T) {
				n := ordinal.Draw(t, "ordinal")
				if got, want := q.Push(prompt(n)), !waiting[n] && !taken[n]; got != want {
					t.Fatalf("push %d: %t, want %t", n, got, want)
				}
				if !taken[n] {
					waiting[n] = true
				}
			},
			"pop": func(t *rapid.T) {
				p, ok := q.Pop()
				if ok != (len(waiting) > 0) {
					t.Fatalf("pop: %t with %d waiting", ok, len(waiting))
				}
				if !ok {
					return
				}
				for n := range waiting {
					if n < p.Ordinal {
						t.Fatalf("%d came before %d", p.Ordinal, n)
					}
				}
				if !waiting[p.Ordinal] || taken[p.Ordinal] {
					t.Fatalf("%d was given out twice", p.Ordinal)
				}
				delete(waiting, p.Ordinal)
				taken[p.Ordinal] = true
			},
			"requeue": func(t *rapid.T) {
				n := ordinal.Draw(t, "ordinal")
				if !taken[n] {
					t.Skip("never taken")
				}
				q.Requeue(prompt(n))
				delete(taken, n)
				waiting[n] = true
			},
			"carry over": func(*rapid.T) {
				var rows []session.QueuedPrompt
				for n := range waiting {
					rows = append(rows, prompt(n))
				}
				q = *session.NewQueue(rows, q.Seen())
			},
			"": func(t *rapid.T) {
				var want []int64
				for n := range waiting {
					want = append(want, n)
				}
				slices.Sort(want)
				ids := []string{}
				for _, n := range want {
					ids = append(ids, prompt(n).ID)
				}
				if got := q.IDs(); !slices.Equal(got, ids) || q.Len() != len(ids) {
					t.Fatalf("got %v, want %v", got, ids)
				}
			},
		})
	})
}
