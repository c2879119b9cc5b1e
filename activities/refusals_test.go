package activities_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/event"
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
