package drivertest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/sandbox"
)

// refusalsReported makes a sandbox connect to a private address twice.
func refusalsReported(t *testing.T, b *bench) {
	if b.lacks(OwnNetworks) {
		_, err := b.provider.Network(b.ctx(t))
		requireCode(t, sandbox.Unsupported, err)
		_, _, err = b.provider.Open("sb-x").Refusals(b.ctx(t), 0)
		requireCode(t, sandbox.Unsupported, err)
		return
	}
	network, err := b.second.Network(b.ctx(t)) // before any other call of this client
	require.NoError(t, err)
	require.NotEmpty(t, network.HostName)
	sb := b.sandbox(t)
	refusals, start, err := sb.Refusals(b.ctx(t), 0)
	require.NoError(t, err)
	require.Empty(t, refusals)
	began := time.Now().Add(-time.Minute) // clocks may differ
	for range 2 {
		res, err := sb.Run(b.ctx(t), sandbox.RunSpec{Argv: b.Commands.Connect("10.1.2.3", 4567)})
		require.NoError(t, err)
		require.NotZero(t, res.Code)
	}
	refusals, last, err := b.second.Open(sb.ID()).Refusals(b.ctx(t), start)
	require.NoError(t, err)
	require.Len(t, refusals, 1, "one of a destination and minute")
	require.Greater(t, last, start)
	require.True(t, refusals[0].Time.After(began), "%v", refusals[0].Time)
	refusals[0].Time = time.Time{}
	require.Equal(t, sandbox.Refusal{IP: "10.1.2.3", Port: 4567, Protocol: "tcp", Verdict: "refused", Count: 1}, refusals[0])
	refusals, again, err := sb.Refusals(b.ctx(t), last)
	require.NoError(t, err)
	require.Empty(t, refusals)
	require.Equal(t, last, again)
	_, _, err = b.provider.Open("sb-unknown").Refusals(b.ctx(t), 0)
	requireCode(t, sandbox.Gone, err)
}
