package localmodal_test

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"testing"

	modal "github.com/modal-labs/modal-client/go"
	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/hostports"
	"github.com/overwinter-dev/overwinter/internal/localmodal"
	"github.com/overwinter-dev/overwinter/internal/localmodal/box"
	"github.com/overwinter-dev/overwinter/internal/localmodal/localmodaltest"
)

// ownNetwork is a server of the level under test whose sandboxes have their own network that
// reaches a web server here; nil where the level has none.
func ownNetwork(t *testing.T) (b *bundle, allowed, other netip.AddrPort) {
	t.Helper()
	web := func() netip.AddrPort {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, "hello") }))
		t.Cleanup(s.Close)
		return netip.MustParseAddrPort(s.Listener.Addr().String())
	}
	allowed, other = web(), web()
	o := options(t, "")
	o.DataDir = t.TempDir()
	t.Cleanup(func() { require.NoError(t, localmodaltest.Unlock(o.DataDir)) })
	o.Network = box.OwnedNetwork
	var err error
	o.HostPorts, err = hostports.Parse(fmt.Sprint(allowed.Port()))
	require.NoError(t, err)
	s, err := localmodal.New(o)
	if o.Isolation == box.Chroot || o.Isolation == box.Directory {
		require.ErrorContains(t, err, "own network", "a level without one says so")
		return nil, allowed, other
	}
	require.NoError(t, err)
	localmodaltest.Run(t, s)
	return connect(t, s), allowed, other
}

func TestHostNetworkIsOutOfReachOfAnOwnNetwork(t *testing.T) {
	t.Parallel()
	b, allowed, other := ownNetwork(t)
	if b == nil {
		return
	}
	require.False(t, b.lacks(box.OwnNetwork))
	sb := b.create(nil)
	require.Equal(t, "hello", b.sh(sb, fmt.Sprintf("curl -sS --max-time 20 http://host.overwinter.internal:%d/", allowed.Port())))

	refused := []string{"127.0.0.1", "host.overwinter.internal", "169.254.169.254", "10.0.0.1", "192.168.1.1", "[::1]", "[fd00::1]", "[::ffff:127.0.0.1]"}
	addresses, err := net.InterfaceAddrs()
	require.NoError(t, err)
	for _, a := range addresses {
		if ip := netip.MustParsePrefix(a.String()).Addr(); !ip.IsLoopback() && ip.Is4() {
			refused = append(refused, ip.String())
		}
	}
	for _, host := range refused {
		out := b.exec(sb, nil, "", "curl", "-sS", "--max-time", "20", fmt.Sprintf("http://%s:%d/", host, other.Port()))
		require.Equal(t, 7, out.code, "%s: %s", host, out.stderr) // failed to connect, not timed out
	}

	require.Equal(t, "nameserver 192.168.127.1", strings.TrimSpace(b.sh(sb, "grep nameserver /etc/resolv.conf")))
	require.Equal(t, "eth0\nlo\n", b.sh(sb, "tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' ' | grep -v stack0 | sort"))
	// No capability of the sandbox's root counts for its network.
	require.NotZero(t, b.exec(sb, nil, "", "python3", "-c", "import socket; socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)").code)
	require.NotZero(t, b.exec(sb, nil, "", "python3", "-c", "import socket; socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 3)").code)
	// Servers may use any port.
	b.sh(sb, `python3 -c 'import socket; socket.create_server(("0.0.0.0", 80))'`)
}

func TestHostNetworkIsOutOfReachOfBuilds(t *testing.T) {
	t.Parallel()
	b, allowed, other := ownNetwork(t)
	if b == nil {
		return
	}
	image := b.image.DockerfileCommands([]string{
		fmt.Sprintf("RUN curl -sS --max-time 20 http://host.overwinter.internal:%d/ > /hello", allowed.Port()),
		fmt.Sprintf("RUN ! curl -sS --max-time 20 http://127.0.0.1:%d/", other.Port()),
	}, nil)
	built, err := image.Build(b.ctx, b.app, nil)
	require.NoError(t, err)
	require.Equal(t, "hello", b.sh(b.createFrom(built, nil), "cat /hello"))
}

func TestHostNetworkHasTunnelsToAnOwnNetwork(t *testing.T) {
	t.Parallel()
	b, _, _ := ownNetwork(t)
	if b == nil {
		return
	}
	probe, err := modal.NewTCPProbe(8080, nil)
	require.NoError(t, err)
	sb := b.create(&modal.SandboxCreateParams{
		Command: []string{"python3", "-c", serveHTTP, "8080"}, UnencryptedPorts: []int{8080}, ReadinessProbe: probe,
	})
	require.NoError(t, sb.WaitUntilReady(b.ctx, patience, nil))
	tunnels, err := sb.Tunnels(b.ctx, patience, nil)
	require.NoError(t, err)
	host, port, err := tunnels[8080].TCPSocket()
	require.NoError(t, err)
	code, body := get(t, "http://"+net.JoinHostPort(host, strconv.Itoa(port)), "")
	require.Equal(t, "200 hello -", fmt.Sprint(code, " ", body))
}
