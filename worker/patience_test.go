package worker

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/session"
)

func TestTheRelayRingsLessAndLessForTheSameRow(t *testing.T) {
	t.Parallel()
	p := patience{}
	ring := session.Ring{SessionID: "ses_a", PromptID: "p", Ordinal: 1}
	start := time.Now()
	var rung []time.Duration
	for at := time.Duration(0); at <= 5*time.Minute; at += time.Second {
		if len(p.due([]session.Ring{ring}, start.Add(at), 3*time.Second)) > 0 {
			rung = append(rung, at/time.Second)
		}
	}
	require.Equal(t, []time.Duration{0, 3, 9, 21, 45, 93, 153, 213, 273}, rung)

	require.Empty(t, p.due(nil, start, 3*time.Second))
	require.Empty(t, p, "what nobody waits for is forgotten")
	require.Len(t, p.due([]session.Ring{ring}, start, 3*time.Second), 1, "and rung for at once when it is back")
	other := session.Ring{SessionID: "ses_a", PromptID: "q", Ordinal: 2}
	require.Equal(t, []session.Ring{other}, p.due([]session.Ring{ring, other}, start, 3*time.Second))
}
