package workspace

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestCrewReadsEverything checks that everything that is added while others are read is read once.
func TestCrewReadsEverything(t *testing.T) {
	t.Parallel()
	for others := range 4 {
		var c crew
		var reads atomic.Int64
		var read func(depth int)
		read = func(depth int) {
			reads.Add(1)
			if depth == 0 {
				return
			}
			for range 10 {
				below := func() { read(depth - 1) }
				if !c.add(below) {
					below()
				}
			}
		}
		c.gather(others, func() { read(4) })
		require.EqualValues(t, 1+10+100+1000+10_000, reads.Load(), "with %d others", others)
	}
}

// TestNoMemberOfCrewIsIdle checks that a member that has finished takes another directory, although the
// one that has found it is still reading.
func TestNoMemberOfCrewIsIdle(t *testing.T) {
	t.Parallel()
	var c crew
	c.gather(1, func() {
		all := make(chan struct{}, maxWaiting)
		for range maxWaiting {
			require.True(t, c.add(func() { all <- struct{}{} }))
		}
		for range maxWaiting {
			select {
			case <-all:
			case <-time.After(10 * time.Second):
				t.Error("a directory waits for the one that contains it")
				return
			}
		}
	})
}

// TestCrewDoesNotHidePanic checks that the caller sees what a read panics with.
func TestCrewDoesNotHidePanic(t *testing.T) {
	t.Parallel()
	var c crew
	require.PanicsWithValue(t, "unreadable", func() {
		c.gather(0, func() { c.add(func() { panic("unreadable") }) })
	})
}

// TestCrewBoundsWaitingDirectories checks this because each has an open file.
func TestCrewBoundsWaitingDirectories(t *testing.T) {
	t.Parallel()
	var c crew
	read := 0
	c.gather(0, func() {
		for range maxWaiting {
			require.True(t, c.add(func() { read++ }))
		}
		require.False(t, c.add(func() { read++ }))
	})
	require.Equal(t, maxWaiting, read)
}
