package eventlog

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

var lines = Format{
	Head: func(dst []byte, e *Event) []byte { return fmt.Appendf(dst, "%d ", e.Seq) }, Tail: "\n",
	Mark: func(e *Event) bool { return e.Seq%7 == 0 },
}

// line returns the frame of an event, whose size depends on its position.
func line(seq int64, sizes []int) string {
	return fmt.Sprintf("%d %s\n", seq, strings.Repeat("x", sizes[int(seq)%len(sizes)]))
}

func pageOf(after int64, n int, sizes []int) *Page {
	p := NewPage(&lines, "ses_a", after)
	for seq := after + 1; seq <= after+int64(n); seq++ {
		p.Add(&Event{Seq: seq, Data: json.RawMessage(strings.Repeat("x", sizes[int(seq)%len(sizes)]))})
	}
	return p
}

// TestTailHoldsItsRange compares a tail with its log after random steps.
func TestTailHoldsItsRange(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		sizes := rapid.SliceOfN(rapid.SampledFrom([]int{1, 20, 300, 5000, maxChunk - 10, maxChunk + 10, 3 * maxChunk}), 1, 6).Draw(t, "sizes")
		var tail tail
		tail.reset(int64(rapid.IntRange(0, 50).Draw(t, "start")))
		deleted := int64(0) // all events up to here are deleted
		t.Repeat(map[string]func(*rapid.T){
			"append": func(t *rapid.T) {
				tail.append(pageOf(tail.newest, rapid.IntRange(1, 40).Draw(t, "events"), sizes))
			},
			"append after a gap": func(t *rapid.T) {
				after := tail.newest + int64(rapid.IntRange(1, 5).Draw(t, "gap"))
				deleted = max(deleted, after)
				tail.append(pageOf(after, 3, sizes))
				require.Equal(t, after, tail.start, "nothing before the gap is left")
			},
			"prepend": func(t *rapid.T) {
				if n := min(tail.start-deleted, 5); n > 0 {
					tail.prepend(pageOf(tail.start-n, int(n), sizes))
				}
			},
			"trim": func(t *rapid.T) {
				bytes := rapid.IntRange(0, 8*maxChunk).Draw(t, "bytes")
				keep := rapid.Bool().Draw(t, "keep")
				newest := tail.newest
				tail.trim(bytes, keep)
				require.True(t, tail.bytes <= bytes || keep && len(tail.chunks) == 1)
				require.Equal(t, newest, tail.newest)
			},
			"age": func(t *rapid.T) { tail.age(time.Now(), rapid.IntRange(0, 8*maxChunk).Draw(t, "bytes")) },
			"forget": func(t *rapid.T) {
				first := int64(rapid.IntRange(1, int(tail.newest)+1).Draw(t, "first"))
				tail.forget(first)
				deleted = max(deleted, first-1)
				require.GreaterOrEqual(t, tail.start, first-1)
				for _, chunk := range tail.chunks {
					require.NotContains(t, "\n"+string(chunk.frames), "\n"+line(first-1, sizes), "what is deleted is not in memory")
				}
			},
			"": func(t *rapid.T) {
				bytes := 0
				for _, chunk := range tail.chunks {
					bytes += chunk.size()
				}
				require.Equal(t, bytes, tail.bytes)
				require.False(t, tail.holds(tail.start-1))
				require.False(t, tail.holds(tail.newest))
				if tail.start == tail.newest {
					return
				}
				for at := int64(rapid.IntRange(int(tail.start), int(tail.newest)-1).Draw(t, "position")); tail.holds(at); {
					b := tail.read(at)
					require.Equal(t, at, b.After)
					var want strings.Builder
					marked := false
					for seq := b.After + 1; seq <= b.Last; seq++ {
						want.WriteString(line(seq, sizes))
						marked = marked || seq%7 == 0
					}
					require.NotZero(t, b.Len())
					require.Equal(t, want.String(), string(b.Frames))
					require.Equal(t, marked, b.Marked)
					require.True(t, b.Len() == 1 || len(b.Frames) <= maxChunk)
					at = b.Last
				}
			},
		})
	})
}

func TestReadEventsStayUnchangedWhileTailGrows(t *testing.T) {
	t.Parallel()
	sizes := []int{100}
	var tail tail
	tail.append(pageOf(0, 1, sizes))
	b := tail.read(0)
	for i := range int64(5000) { // many chunks
		tail.append(pageOf(i+1, 1, sizes))
		tail.trim(2*maxChunk, true)
	}
	require.Equal(t, line(1, sizes), string(b.Frames))
	require.Equal(t, len(b.Frames), cap(b.Frames), "a reader that appends to it does not write into the tail")
}

func TestDataIsOneLine(t *testing.T) {
	t.Parallel()
	p := NewPage(&Format{}, "ses_a", 0)
	p.Add(&Event{Seq: 1, Data: json.RawMessage("{\r\n\"a\":\n\"\\n\"}")})
	require.True(t, bytes.Equal([]byte(`{  "a": "\n"}`), p.Batch().Frames), "%s", p.Batch().Frames)
}

func TestReadingTailAllocatesNothing(t *testing.T) { //nolint:paralleltest // allocations are counted
	f := NewFollower(&numberedSource{}, FollowerOptions{})
	defer f.Stop()
	topic := f.topics.enter("ses_a")
	f.topics.place(topic, 1, 0)
	f.publish(topic, pageOf(0, 100, []int{200}), 0)
	r := &Reader{follower: f, topic: topic, closed: make(chan struct{})}
	require.Zero(t, testing.AllocsPerRun(100, func() {
		r.position = 0
		for r.position < 100 {
			if _, err := r.Next(t.Context(), nil); err != nil {
				panic(err)
			}
		}
	}))
}

func TestPageSizeFollowsEventSize(t *testing.T) {
	t.Parallel()
	limit := firstLimit
	for range 5 {
		limit = nextLimit(pageOf(0, min(limit, 40), []int{1}), 1000) // the bytes of 40 events end a page
	}
	require.Equal(t, 80, limit)
	for range 5 {
		limit = nextLimit(pageOf(0, limit, []int{1}), 1000) // they do not
	}
	require.Equal(t, 1000, limit)
	require.Equal(t, 16, nextLimit(pageOf(0, 1, []int{1}), 1000))
	require.Equal(t, 2, nextLimit(pageOf(0, 1, []int{1}), 2))
}
