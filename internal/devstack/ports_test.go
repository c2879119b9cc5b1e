package devstack

import (
	"net"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFreePortIsKept(t *testing.T) {
	t.Parallel()
	stayed := 0
	for range 5 { // other programs take ports too
		first := newPortChooser()
		port, err := first.free(t.Context(), loopback, 0)
		require.NoError(t, err)
		first.close()
		again, err := newPortChooser().free(t.Context(), loopback, port)
		require.NoError(t, err)
		if again == port {
			stayed++
		}
	}
	require.GreaterOrEqual(t, stayed, 3)
}

func TestTakenPortIsReplaced(t *testing.T) {
	t.Parallel()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", loopbackAddress(0))
	require.NoError(t, err)
	defer l.Close()
	taken := l.Addr().(*net.TCPAddr).Port
	chooser := newPortChooser()
	port, err := chooser.free(t.Context(), loopback, taken)
	require.NoError(t, err)
	require.NotEqual(t, taken, port)
	next, err := chooser.free(t.Context(), loopback, port)
	require.NoError(t, err)
	require.NotEqual(t, port, next, "each is handed out once")
	_, err = chooser.choose(t.Context(), loopback, taken, 0, "--some-port")
	require.ErrorContains(t, err, "--some-port")
}

// TestConcurrentStacksGetDifferentPorts starts two stacks whose parts do not listen yet.
func TestConcurrentStacksGetDifferentPorts(t *testing.T) {
	t.Parallel()
	first, second := newPortChooser(), newPortChooser()
	port, err := first.free(t.Context(), loopback, 0)
	require.NoError(t, err)
	other, err := second.free(t.Context(), loopback, port)
	require.NoError(t, err)
	require.NotEqual(t, port, other)
	second.close()
	require.False(t, newPortChooser().reserve(t.Context(), port))
	first.close()
	require.True(t, newPortChooser().reserve(t.Context(), port))
}
