package loopback_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/hostports"
	"github.com/overwinter-dev/overwinter/internal/loopback"
	"github.com/overwinter-dev/overwinter/internal/sandbox"
)

func network(t *testing.T) *sandbox.Network {
	t.Helper()
	ports, err := hostports.Parse("8901")
	require.NoError(t, err)
	return &sandbox.Network{HostName: "host.internal", HostPorts: ports}
}

func TestURLsOfThisMachineAreRewritten(t *testing.T) {
	t.Parallel()
	n := network(t)
	variables := map[string]string{
		"A_BASE_URL":              "http://127.0.0.1:8901/v1",
		"B_BASE_URL":              "https://api.example.com",
		"OPENCODE_CONFIG_CONTENT": `{"provider":{"x":{"options":{"baseURL":"http://localhost:8901"}}},"number":12345678901234567890}`,
		"OTHER":                   "http://127.0.0.1:1",
	}
	require.NoError(t, loopback.Rewrite(func() (*sandbox.Network, error) { return n, nil }, variables))
	require.Equal(t, map[string]string{
		"A_BASE_URL":              "http://host.internal:8901/v1",
		"B_BASE_URL":              "https://api.example.com",
		"OPENCODE_CONFIG_CONTENT": `{"number":12345678901234567890,"provider":{"x":{"options":{"baseURL":"http://host.internal:8901"}}}}`,
		"OTHER":                   "http://127.0.0.1:1",
	}, variables)
}

func TestClosedPortIsNamed(t *testing.T) {
	t.Parallel()
	n := network(t)
	err := loopback.Rewrite(func() (*sandbox.Network, error) { return n, nil }, map[string]string{"A_BASE_URL": "http://[::1]:9000"})
	_, ok := errors.AsType[*loopback.Error](err)
	require.True(t, ok, "error: %v", err)
	require.ErrorContains(t, err, "A_BASE_URL names port 9000")
}

// TestNetworkIsQueriedOnlyForLocalAddresses also checks that nothing is rewritten if
// sandboxes share this machine's network.
func TestNetworkIsQueriedOnlyForLocalAddresses(t *testing.T) {
	t.Parallel()
	failed := func() (*sandbox.Network, error) { return nil, errors.New("asked") }
	require.NoError(t, loopback.Rewrite(failed, map[string]string{"A_BASE_URL": "https://api.example.com"}))
	variables := map[string]string{"A_BASE_URL": "http://localhost"}
	require.ErrorContains(t, loopback.Rewrite(failed, variables), "asked")
	require.NoError(t, loopback.Rewrite(func() (*sandbox.Network, error) { return nil, nil }, variables))
	require.Equal(t, "http://localhost", variables["A_BASE_URL"])
}

func TestURLsAreListed(t *testing.T) {
	t.Parallel()
	require.Equal(t, []loopback.URL{
		{Variable: "A_BASE_URL", Address: "127.0.0.1:8901", Port: 8901}, {Variable: "B_BASE_URL", Address: "localhost:443", Port: 443},
	}, loopback.URLs(map[string]string{"B_BASE_URL": "https://localhost", "A_BASE_URL": "http://127.0.0.1:8901", "C_BASE_URL": "https://api.example.com"}))
}
