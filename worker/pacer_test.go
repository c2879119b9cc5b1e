package worker

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/backlog"
)

func TestRelayBacksOffPerRow(t *testing.T) {
	t.Parallel()
	p := newPacer(3 * time.Second)
	work := backlog.Unclaimed{SessionID: "ses_a", PromptID: "p", Ordinal: 1}
	start := time.Now()
	var rung []time.Duration
	for at := time.Duration(0); at <= 3*time.Minute; at += time.Second {
		if len(p.due([]backlog.Unclaimed{work}, start.Add(at))) > 0 {
			p.tried(work, start.Add(at))
			rung = append(rung, at/time.Second)
		}
	}
	require.Equal(t, []time.Duration{0, 3, 9, 21, 45, 75, 105, 135, 165}, rung)

	other := backlog.Unclaimed{SessionID: "ses_a", PromptID: "q", Ordinal: 2}
	now := start.Add(3 * time.Minute)
	require.Equal(t, []backlog.Unclaimed{other}, p.due([]backlog.Unclaimed{work, other}, now))
	require.Equal(t, []backlog.Unclaimed{other}, p.due([]backlog.Unclaimed{other}, now), "signals that were not attempted are not charged")
	p.due(nil, now.Add(3*longestPause))
	require.Empty(t, p.pauses, "rows without recent signals are forgotten")
}
