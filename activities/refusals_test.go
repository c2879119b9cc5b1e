package activities_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/event"
	"github.com/overwinter-dev/overwinter/internal/sandbox"
)

func TestRefusedConnectionsAreEventsOfTurn(t *testing.T) {
	t.Parallel()
	if sharesNetwork(t) {
		return
	}
	b := setup(t)
	ready := b.create(t)
	run := b.claim(t, ready, "$ for i in 1 2 3; do curl -s --max-time 20 http://10.9.8.7:4567/ || true; done; curl -s --max-time 20 http://169.254.169.254/ || true; sleep 1")
	_, err := b.turn(run)
	require.NoError(t, err)
	var refused []event.NetworkData
	for _, e := range b.of(t, run.RunID, "network") {
		var data event.NetworkData
		require.NoError(t, json.Unmarshal(e.Data, &data))
		require.GreaterOrEqual(t, data.Count, 1)
		data.Count = 0
		refused = append(refused, data)
	}
	require.ElementsMatch(t, []event.NetworkData{
		{IP: "10.9.8.7", Port: 4567, Protocol: "tcp", Verdict: "refused"},
		{IP: "169.254.169.254", Port: 80, Protocol: "tcp", Verdict: "refused"},
	}, refused, "one of each destination and minute")

	// Another turn does not report them again.
	next := b.claim(t, ready, "$ sleep 1")
	_, err = b.turn(next)
	require.NoError(t, err)
	require.Empty(t, b.of(t, next.RunID, "network"))
}

// TestRefusalsBetweenAttendedTurnsAreEvents checks that connections that are refused while an attendant
// waits are events of the next turn, once.
func TestRefusalsBetweenAttendedTurnsAreEvents(t *testing.T) {
	t.Parallel()
	if sharesNetwork(t) {
		return
	}
	b := setup(t)
	ready := b.create(t)
	b.attended(t, nil)
	b.begin(t, b.attendedClaim(t, ready, "the first"))
	second := b.submit(t, "the second")
	b.ranOnce(t, second, "the second")
	result, err := b.config.Sandbox.Open(ready.SandboxID).Run(b.ctx, sandbox.RunSpec{
		Argv: []string{"curl", "-s", "--max-time", "20", "http://10.9.8.7:4567/"}, Timeout: waitLimit,
	})
	require.NoError(t, err)
	require.NotZero(t, result.Code)
	third, fourth := b.submit(t, "the third"), b.submit(t, "the fourth")
	b.ranOnce(t, fourth, "the fourth")
	require.Empty(t, b.of(t, b.prompt(t, second.ID).RunID, "network"))
	require.Len(t, b.of(t, b.prompt(t, third.ID).RunID, "network"), 1)
	require.Empty(t, b.of(t, b.prompt(t, fourth.ID).RunID, "network"))
}
