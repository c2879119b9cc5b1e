package postgres

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/overwinter-dev/overwinter/internal/eventlog"
	"github.com/overwinter-dev/overwinter/internal/session"
)

func none(string) []byte { return nil }

// idleNotifier returns a notifier that sends nothing.
func idleNotifier() *notifier {
	return &notifier{grown: map[string]*news{}, wake: make(chan struct{}, 1), stop: func() {}}
}

func TestNoticesStayWithinTheirBounds(t *testing.T) {
	t.Parallel()
	require.Equal(t, []string{"ses_a,ses_b"}, notices([]string{"ses_a", "ses_b"}, none))
	for _, n := range []int{1, 212, 213, 214, 500, 840, 5000} {
		var ids []string
		for range n {
			ids = append(ids, session.NewID(session.SessionPrefix))
		}
		payloads := notices(ids, none)
		require.LessOrEqual(t, len(payloads), maxNotices)
		for _, p := range payloads {
			require.Less(t, len(p), 8000)
		}
		if joined := strings.Join(payloads, ","); joined != everySession {
			require.Equal(t, strings.Join(ids, ","), joined)
		}
	}
}

// TestNoticesReturnTheirEvents encodes random events and decodes them. A program that knows only ids
// finds them all.
func TestNoticesReturnTheirEvents(t *testing.T) {
	t.Parallel()
	anyText := rapid.OneOf(rapid.SampledFrom([]string{"", ",", ",,", ";", ":", "1:x;", " ", "12 ", "ses_a,ses_b", "ä\n\r"}), rapid.String())
	rapid.Check(t, func(t *rapid.T) {
		n := idleNotifier()
		events := map[string][]eventlog.Event{}
		for i := range rapid.IntRange(1, 8).Draw(t, "sessions") {
			id := fmt.Sprintf("ses_%d", i)
			seq := rapid.Int64Range(0, 1<<40).Draw(t, "seq")
			for range rapid.IntRange(1, 5).Draw(t, "events") {
				seq++
				events[id] = append(events[id], eventlog.Event{
					Seq: seq, SessionID: id, At: time.UnixMicro(rapid.Int64Range(-1<<50, 1<<50).Draw(t, "at")).UTC(),
					Type: anyText.Draw(t, "type"), ConversationID: anyText.Draw(t, "conversation"), RunID: anyText.Draw(t, "run"),
					Data: json.RawMessage(anyText.Draw(t, "data") + strings.Repeat("x", rapid.SampledFrom([]int{0, 1, 10, 500, 3000, 9000}).Draw(t, "size"))),
				})
			}
			n.publish(inTurn, events[id])
		}
		notices := n.take()
		require.Len(t, notices, 1)
		payload := notices[0].payload
		require.Less(t, len(payload), 8000)
		grown, err := growths(payload)
		require.NoError(t, err)
		require.Len(t, grown, len(events))
		names := strings.Split(payload, ",")
		for i, g := range grown {
			require.Equal(t, g.SessionID, names[i], "an earlier program finds the ids")
			if g.Events != nil {
				require.Equal(t, events[g.SessionID], g.Events)
			}
		}
		require.Empty(t, n.take())
		require.Zero(t, n.size)
	})
}

func TestNotifierDropsEventsThatMustBeRead(t *testing.T) {
	t.Parallel()
	event := func(id string, seq int64, data string) eventlog.Event {
		return eventlog.Event{SessionID: id, Seq: seq, At: time.UnixMicro(1).UTC(), Type: "x", Data: json.RawMessage(data)}
	}
	for name, c := range map[string]struct {
		publish func(n *notifier)
		want    []eventlog.Growth
	}{
		"consecutive commits are joined": {
			func(n *notifier) {
				n.publish(inTurn, []eventlog.Event{event("a", 1, "{}")})
				n.publish(inTurn, []eventlog.Event{event("a", 2, "{}")})
			}, []eventlog.Growth{{SessionID: "a", Events: []eventlog.Event{event("a", 1, "{}"), event("a", 2, "{}")}}},
		},
		"commits in the wrong order": {
			func(n *notifier) {
				n.publish(inTurn, []eventlog.Event{event("a", 2, "{}"), event("b", 7, "{}")})
				n.publish(inTurn, []eventlog.Event{event("a", 1, "{}")})
				n.publish(inTurn, []eventlog.Event{event("a", 3, "{}")})
			}, []eventlog.Growth{{SessionID: "a"}, {SessionID: "b", Events: []eventlog.Event{event("b", 7, "{}")}}},
		},
		"a commit whose response was lost": {
			func(n *notifier) {
				n.publish(inTurn, []eventlog.Event{event("a", 1, "{}")})
				n.notify(inTurn, "a")
				n.publish(inTurn, []eventlog.Event{event("a", 2, "{}")})
			}, []eventlog.Growth{{SessionID: "a"}},
		},
		"an event that must be read": {
			func(n *notifier) {
				other := eventRow{SessionID: "a", Seq: 2, Type: "x", RunID: "run_1", RunNo: runByID, Data: "{}"}
				n.publish(inTurn, []eventlog.Event{event("a", 1, "{}"), other.event(), event("a", 3, "{}")})
			}, []eventlog.Growth{{SessionID: "a"}},
		},
		"more than a notification has room for": {
			func(n *notifier) {
				n.publish(inTurn, []eventlog.Event{event("a", 1, "{}"), event("b", 1, strings.Repeat("x", 8000)), event("c", 1, "{}")})
			}, []eventlog.Growth{{SessionID: "a"}, {SessionID: "b"}, {SessionID: "c"}},
		},
	} {
		n := idleNotifier()
		c.publish(n)
		notices := n.take()
		require.Len(t, notices, 1, name)
		require.Equal(t, turnsChannel, notices[0].channel, name)
		grown, err := growths(notices[0].payload)
		require.NoError(t, err, name)
		require.Equal(t, c.want, grown, name)
	}
}

func FuzzNotice(f *testing.F) {
	f.Add("*")
	f.Add("ses_a,ses_b")
	f.Add("ses_a,ses_b,,1 7 1000 1:x0:0:2:{}8 1000 1:x0:0:2:{};0 1 1 0:0:0:0:;")
	f.Add("ses_a,,0 1 1 1:x0:0:99999999999999999999:")
	f.Add("ses_a,,0 1 1 1:x0:0:-1:")
	f.Add("ses_a,,5 1 1 1:x0:0:2:{};")
	f.Add("ses_a,,0 1 1 1:x0:0:2:{}3 1 1:x0:0:2:{};")
	f.Fuzz(func(t *testing.T, payload string) {
		grown, err := growths(payload)
		for _, g := range grown {
			if err != nil && g.Events != nil {
				t.Fatal("events after an error")
			}
			for i, e := range g.Events {
				if i > 0 && e.Seq != g.Events[i-1].Seq+1 {
					t.Fatal("a gap")
				}
			}
		}
	})
}
