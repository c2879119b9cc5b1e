package localmodal_test

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"testing"

	modal "github.com/modal-labs/modal-client/go"
	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/hostports"
	"github.com/overwinter-dev/overwinter/internal/localmodal"
	"github.com/overwinter-dev/overwinter/internal/localmodal/box"
	"github.com/overwinter-dev/overwinter/internal/localmodal/localmodaltest"
	"github.com/overwinter-dev/overwinter/internal/memorytest"
)

// ownNetwork returns a server of the level under test whose sandboxes have their own network, from
// which a local web server is reachable; nil if the level has none.
func ownNetwork(t *testing.T) (b *bundle, allowed, other netip.AddrPort) {
	t.Helper()
	web := func() netip.AddrPort {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, "hello") }))
		t.Cleanup(s.Close)
		return netip.MustParseAddrPort(s.Listener.Addr().String())
	}
	allowed, other = web(), web()
	o := options(t, "")
	o.DataDir = memorytest.Dir(t)
	t.Cleanup(func() { require.NoError(t, localmodaltest.Unlock(o.DataDir)) })
	o.Network = box.OwnedNetwork
	var err error
	o.HostPorts, err = hostports.Parse(fmt.Sprint(allowed.Port()))
	require.NoError(t, err)
	s, err := localmodal.New(o)
	if o.Isolation == box.Chroot || o.Isolation == box.Directory {
		require.ErrorContains(t, err, "own network", "a level without its own network reports that")
		return nil, allowed, other
	}
	require.NoError(t, err)
	localmodaltest.Run(t, s)
	return connect(t, s), allowed, other
}

func TestHostNetworkIsOutOfReachOfOwnNetwork(t *testing.T) {
	t.Parallel()
	b, allowed, other := ownNetwork(t)
	if b == nil {
		return
	}
	require.False(t, b.lacks(box.OwnNetwork))
	sb := b.create(nil)
	require.Equal(t, "hello", b.sh(sb, fmt.Sprintf("curl -sS --max-time 20 http://host.overwinter.internal:%d/", allowed.Port())))
	require.Regexp(t, `^[1-9]\d*\n$`, b.sh(sb, "grep host0: /proc/net/dev | cut -d: -f2 | awk '{print $2}'"), "packets of the kernel's socket")

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
	require.Equal(t, "eth0\nhost0\nlo\n", b.sh(sb, "tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' ' | grep -v stack0 | sort"))
	// The sandbox's root has no capabilities over its network.
	require.NotZero(t, b.exec(sb, nil, "", "python3", "-c", "import socket; socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)").code)
	require.NotZero(t, b.exec(sb, nil, "", "python3", "-c", "import socket; socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 3)").code)
	// Servers in the sandbox may use any port.
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

func TestHostNetworkHasTunnelsToOwnNetwork(t *testing.T) {
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
	require.NoError(t, sb.WaitUntilReady(b.ctx, waitLimit, nil))
	tunnels, err := sb.Tunnels(b.ctx, waitLimit, nil)
	require.NoError(t, err)
	host, port, err := tunnels[8080].TCPSocket()
	require.NoError(t, err)
	code, body := get(t, "http://"+net.JoinHostPort(host, strconv.Itoa(port)), "")
	require.Equal(t, "200 hello -", fmt.Sprint(code, " ", body))
}

// hijack tries to intercept or to remove the route to a port of the machine, and to use the
// interface for another port. It prints what succeeds.
const hijack = `
import errno, os, socket, struct, sys
port, other = int(sys.argv[1]), int(sys.argv[2])
if len(sys.argv) > 3:
    os.setgid(int(sys.argv[3])); os.setuid(int(sys.argv[3]))
host = "192.168.127.254"
def attempt(what, do):
    try:
        do()
        print(what)
    except OSError as e:
        pass
def netlink(kind, flags, body):
    s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
    s.send(struct.pack("IHHII", 16 + len(body), kind, 5 | flags, 1, 0) + body)
    code = struct.unpack("i", s.recv(4096)[16:20])[0]
    if code: raise OSError(-code, os.strerror(-code))
index = socket.if_nametoindex("host0")
attribute = lambda kind, value: struct.pack("HH", 4 + len(value), kind) + value
rule = struct.pack("BBBBBBBBI", 2, 32, 0, 0, 100, 0, 0, 1, 0) + attribute(1, socket.inet_aton(host))
attempt("remove the rule", lambda: netlink(33, 0, rule))
attempt("add a rule", lambda: netlink(32, 0x400, rule))
attempt("remove the interface", lambda: netlink(17, 0, struct.pack("BBHiII", 0, 0, 0, index, 0, 0)))
attempt("take the interface down", lambda: netlink(16, 0, struct.pack("BBHiII", 0, 0, 0, index, 0, 1)))
attempt("add an address", lambda: netlink(20, 0x400, struct.pack("BBBBI", 2, 32, 0, 0, index) + attribute(2, socket.inet_aton(host))))
attempt("write settings", lambda: open("/proc/sys/net/ipv4/conf/host0/forwarding", "w").write("1"))
def through(address, number, kind=socket.SOCK_STREAM):
    s = socket.socket(socket.AF_INET, kind); s.settimeout(0.3)
    s.setsockopt(socket.SOL_SOCKET, 25, b"host0")
    s.connect((address, number))
    if kind == socket.SOCK_DGRAM:
        s.send(b"x"); s.recv(1)
for address in [host, "127.0.0.1", "192.168.127.1", "169.254.169.254"] + sys.argv[4:]:
    attempt("reach " + address, lambda: through(address, other))
    attempt("reach over UDP " + address, lambda: through(address, other, socket.SOCK_DGRAM))
servers = []
def serve(address):
    s = socket.socket(); s.setsockopt(0, 15, 1); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.bind((address, port)); s.listen(); servers.append(s)
serve("0.0.0.0") # its own port is the sandbox's to use
attempt("bind the address", lambda: None if serve(host) else None)
for _ in range(20):
    s = socket.create_connection((host, port), 20)
    s.sendall(b"GET / HTTP/1.0\r\n\r\n")
    answer = b""
    while True:
        part = s.recv(4096)
        if not part: break
        answer += part
    if not answer.endswith(b"hello"): print("get another answer", answer)
for s in servers:
    s.setblocking(False)
    attempt("accept a connection", s.accept)
`

func TestHostNetworkSocketsAreOutOfReach(t *testing.T) {
	t.Parallel()
	b, allowed, other := ownNetwork(t)
	if b == nil {
		return
	}
	sb := b.create(nil)
	b.sh(sb, "test -e /sys/class/net/host0 || grep -q host0: /proc/net/dev")
	var own []string
	addresses, err := net.InterfaceAddrs()
	require.NoError(t, err)
	for _, a := range addresses {
		if ip := netip.MustParsePrefix(a.String()).Addr(); !ip.IsLoopback() && ip.Is4() {
			own = append(own, ip.String())
		}
	}
	users := []string{"0"}
	if os.Geteuid() == 0 { // otherwise the sandbox has no other user
		users = append(users, "1000")
	}
	for _, user := range users {
		args := append([]string{"python3", "-c", hijack, fmt.Sprint(allowed.Port()), fmt.Sprint(other.Port()), user}, own...)
		out := b.exec(sb, nil, "", args...)
		require.Zero(t, out.code, "user %s: %s", user, out.stderr)
		require.Empty(t, strings.ReplaceAll(out.stdout, "bind the address\n", ""), "user %s", user) // binding the port yields no connections
	}
}

func TestHostNetworkConnectionsOutliveSnapshot(t *testing.T) {
	t.Parallel()
	b, allowed, _ := ownNetwork(t)
	if b == nil {
		return
	}
	const client = `
import http.client, sys
c = http.client.HTTPConnection("host.overwinter.internal", int(sys.argv[1]), timeout=60)
for line in sys.stdin:
    c.request("GET", "/")
    print(c.getresponse().read().decode(), flush=True)
`
	sb := b.create(nil)
	process, err := sb.Exec(b.ctx, []string{"python3", "-c", client, fmt.Sprint(allowed.Port())}, nil)
	require.NoError(t, err)
	answers := bufio.NewScanner(process.Stdout)
	ask := func() string {
		_, err := process.Stdin.Write([]byte("\n"))
		require.NoError(t, err)
		require.True(t, answers.Scan(), "%v", answers.Err())
		return answers.Text()
	}
	require.Equal(t, "hello", ask())
	image, err := sb.SnapshotFilesystem(b.ctx, nil)
	require.NoError(t, err)
	require.Equal(t, "hello", ask(), "over the same connection")
	woken := b.createFrom(image, nil)
	require.Equal(t, "hello", b.sh(woken, fmt.Sprintf("curl -sS --max-time 20 http://host.overwinter.internal:%d/", allowed.Port())))
	require.NoError(t, process.Stdin.Close())
	_, err = process.Wait(b.ctx, nil)
	require.NoError(t, err)
}
