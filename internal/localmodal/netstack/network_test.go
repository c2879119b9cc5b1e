package netstack_test

import (
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/dns/dnsmessage"

	"github.com/overwinter-dev/overwinter/internal/hostports"
	"github.com/overwinter-dev/overwinter/internal/localmodal/netdevice"
	"github.com/overwinter-dev/overwinter/internal/localmodal/netstack"
)

// Destinations that represent the internet: tests redirect them to local servers.
const (
	internet  = "198.51.100.7:80"
	internet6 = "[2001:db8::7]:80"
)

func redirect(from string, to net.Addr) netstack.Config {
	return netstack.Config{}.Redirect(netip.MustParseAddrPort(from), netip.MustParseAddrPort(to.String()))
}

// eachKind runs a test with every kind of device that this user can open.
func eachKind(t *testing.T, test func(t *testing.T, kind netdevice.Kind)) {
	t.Helper()
	for _, kind := range []netdevice.Kind{netdevice.TUN, netdevice.Veth} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			if f, err := os.OpenFile("/dev/net/tun", os.O_RDWR, 0); err == nil {
				require.NoError(t, f.Close())
			} else if kind == netdevice.TUN {
				t.Skip("no access to /dev/net/tun")
			}
			test(t, kind)
		})
	}
}

func TestPolicyRefusesEverythingButInternet(t *testing.T) {
	t.Parallel()
	for _, ip := range strings.Fields("127.0.0.1 127.9.9.9 ::1 ::ffff:127.0.0.1 ::127.0.0.1 10.0.0.1 172.16.0.1 172.31.255.255 192.168.1.1 " +
		"::ffff:192.168.1.1 169.254.169.254 ::ffff:169.254.169.254 fc00::1 fd00:ec2::254 fe80::1 fe80::1%lo fec0::1 ff02::1 224.0.0.1 " +
		"255.255.255.255 0.0.0.0 0.1.2.3 :: 100.100.100.200 192.0.0.192 240.0.0.1 64:ff9b::a00:1 64:ff9b::7f00:1 64:ff9b:1::808:808 " +
		"2002:a00:1:: 2002:7f00:1::1 2001:0:1::1 ::ffff:0:7f00:1 ::ffff:0:a00:1 100::1 64:ff9b:2::a00:1 5f00::1 4000::1 192.168.127.1 192.168.127.254") {
		require.False(t, netstack.Public(netip.MustParseAddr(ip)), ip)
	}
	for _, ip := range strings.Fields("8.8.8.8 172.32.0.1 100.63.255.255 192.0.1.1 2606:4700::1111 64:ff9b::808:808 2002:808:808::1") {
		require.True(t, netstack.Public(netip.MustParseAddr(ip)), ip)
	}
}

func TestPolicyKnowsAddressesOfThisMachine(t *testing.T) {
	t.Parallel()
	addresses, err := net.InterfaceAddrs()
	require.NoError(t, err)
	require.NotEmpty(t, addresses)
	for _, a := range addresses {
		require.True(t, netstack.Own(t.Context(), netip.MustParsePrefix(a.String()).Addr()), a)
	}
	require.False(t, netstack.Own(t.Context(), netip.MustParseAddr("8.8.8.8")))
}

func TestConnectionsReachTheirDestinations(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, kind netdevice.Kind) {
		server := serve(t, "127.0.0.1:0")
		config := redirect(internet, server).Redirect(netip.MustParseAddrPort(internet6), netip.MustParseAddrPort(server.String()))
		for _, address := range []string{internet, internet6} {
			require.Equal(t, "after you", inside(t, kind, config, "half", address))
			for _, direction := range []string{"up", "down"} {
				rate, err := strconv.Atoi(inside(t, kind, config, direction, address, strconv.Itoa(20<<20)))
				require.NoError(t, err)
				require.Positive(t, rate)
			}
		}
		require.Equal(t, "done", inside(t, kind, config, "parallel", internet, "100"))
	})
}

func TestRefusedConnectionsFailAtOnce(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, kind netdevice.Kind) {
		server := serve(t, "127.0.0.1:0")
		_, port, err := net.SplitHostPort(server.String())
		require.NoError(t, err)
		refused := []string{"192.168.127.254:" + port, "192.168.127.1:80", "10.0.0.1:80", "169.254.169.254:80", "192.168.1.1:" + port, "[fd00::1]:80", "[64:ff9b::7f00:1]:" + port}
		addresses, err := net.InterfaceAddrs()
		require.NoError(t, err)
		for _, a := range addresses {
			if ip := netip.MustParsePrefix(a.String()).Addr(); !ip.IsLoopback() && !ip.IsLinkLocalUnicast() {
				refused = append(refused, net.JoinHostPort(ip.String(), port))
			}
		}
		s := start(t, kind, netstack.Config{}, append([]string{"dial"}, refused...)...)
		lines := strings.Split(s.wait(t), "\n")
		require.Len(t, lines, len(refused))
		for _, line := range lines {
			require.Regexp(t, `atOnce=true .*connection refused$`, line)
		}
		refusals, last := s.network.Refusals(0)
		require.Len(t, refusals, len(refused))
		require.EqualValues(t, len(refused), last)
		require.Equal(t, refused[0], netip.AddrPortFrom(refusals[0].IP, refusals[0].Port).String())
		require.Equal(t, netstack.Refusal{
			No: 1, Time: refusals[0].Time, IP: refusals[0].IP, Port: refusals[0].Port, Protocol: netstack.TCP, Verdict: netstack.Refused, Count: 1,
		}, refusals[0])
		// The namespace's own loopback interface is not the machine's.
		require.Regexp(t, "connection refused$", inside(t, kind, netstack.Config{}, "dial", "127.0.0.1:"+port))
		require.Regexp(t, "connection refused$", inside(t, kind, netstack.Config{}, "udp", "10.0.0.1:53", "10"))
	})
}

func TestHostPortsLeadToLoopbackInterface(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, kind netdevice.Kind) {
		for _, address := range []string{"127.0.0.1:0", "[::1]:0"} {
			_, port, err := net.SplitHostPort(serve(t, address).String())
			require.NoError(t, err)
			ports, err := hostports.Parse(port)
			require.NoError(t, err)
			require.Equal(t, "after you", inside(t, kind, netstack.Config{HostPorts: ports}, "half", "192.168.127.254:"+port))
		}
	})
}

func TestPacketsComeBack(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, kind netdevice.Kind) {
		echo := serveUDP(t, func(b []byte) []byte { return b })
		require.Equal(t, "true", inside(t, kind, redirect(internet, echo), "udp", internet, "1200"))
		require.Equal(t, "true", inside(t, kind, redirect(internet, echo), "udp", internet, "9000"))
		require.Equal(t, "true", inside(t, kind, redirect(internet6, echo), "udp", internet6, "1200"))
	})
}

// serveUDP answers each packet.
func serveUDP(t testing.TB, reply func([]byte) []byte) net.Addr {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	require.NoError(t, err)
	answerPackets(t, conn, reply)
	return conn.LocalAddr()
}

// answerPackets answers packets until the test ends.
func answerPackets(t testing.TB, conn net.PacketConn, reply func([]byte) []byte) {
	t.Helper()
	done := make(chan struct{})
	t.Cleanup(func() {
		require.NoError(t, conn.Close())
		<-done
	})
	go func() {
		defer close(done)
		for b := make([]byte, 1<<16); ; {
			n, from, err := conn.ReadFrom(b)
			if err != nil {
				return
			}
			if answer := reply(b[:n]); answer != nil {
				_, _ = conn.WriteTo(answer, from)
			}
		}
	}()
}

// zone answers queries with these records; other names do not exist.
func zone(query []byte, truncate bool) []byte {
	var m dnsmessage.Message
	if m.Unpack(query) != nil {
		return nil
	}
	m.Response, m.Additionals = true, nil
	question := m.Questions[0]
	head := dnsmessage.ResourceHeader{Name: question.Name, Class: dnsmessage.ClassINET, TTL: 1}
	switch name := question.Name.String(); {
	case name == "broken.example.":
		m.RCode = dnsmessage.RCodeServerFailure
	case name == "large.example." && truncate:
		m.Truncated = true
	case question.Type == dnsmessage.TypeA && name == "rebound.example.":
		m.Answers = []dnsmessage.Resource{{Header: head, Body: &dnsmessage.AResource{A: [4]byte{127, 0, 0, 1}}}}
	case question.Type == dnsmessage.TypeA && (name == "web.example." || name == "large.example."):
		m.Answers = []dnsmessage.Resource{{Header: head, Body: &dnsmessage.AResource{A: [4]byte{10, 1, 2, 3}}}}
	case question.Type == dnsmessage.TypeAAAA && name == "web.example.":
		m.Answers = []dnsmessage.Resource{{Header: head, Body: &dnsmessage.AAAAResource{AAAA: netip.MustParseAddr("2001:db8::7").As16()}}}
	case name != "web.example." && name != "large.example." && name != "rebound.example.":
		m.RCode = dnsmessage.RCodeNameError
	}
	reply, err := m.Pack()
	if err != nil {
		return nil
	}
	return reply
}

// listenBoth listens on a port that is free for both protocols.
func listenBoth(t testing.TB) (net.Listener, net.PacketConn) {
	t.Helper()
	for range 100 {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		packets, err := net.ListenPacket("udp", listener.Addr().String())
		if err == nil {
			return listener, packets
		}
		require.NoError(t, listener.Close())
	}
	require.FailNow(t, "no port is free for both protocols")
	return nil, nil
}

// serveDNS serves the zone on the same port of both protocols.
func serveDNS(t testing.TB) string {
	t.Helper()
	listener, packets := listenBoth(t)
	answerPackets(t, packets, func(b []byte) []byte { return zone(b, true) })
	var group sync.WaitGroup
	t.Cleanup(func() {
		require.NoError(t, listener.Close())
		group.Wait()
	})
	group.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			group.Go(func() {
				defer conn.Close()
				b := make([]byte, 1<<16)
				if n, err := conn.Read(b); err == nil && n > 2 {
					answer := zone(b[2:n], false)
					_, _ = conn.Write(append([]byte{byte(len(answer) >> 8), byte(len(answer))}, answer...))
				}
			})
		}
	})
	return listener.Addr().String()
}

func TestNamesAreResolvedByResolversOfThisMachine(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, kind netdevice.Kind) {
		server := serveDNS(t)
		config := netstack.Config{Resolvers: func() []string { return []string{server} }}
		for _, protocol := range []string{"udp", "tcp"} {
			resolve := func(network, name string) string { return inside(t, kind, config, "resolve", protocol, network, name) }
			require.Equal(t, "[192.168.127.254]", resolve("ip", "host.overwinter.internal"))
			require.Equal(t, "[10.1.2.3]", resolve("ip4", "web.example"))
			require.Equal(t, "[10.1.2.3]", resolve("ip4", "large.example"), "an answer that does not fit in a packet")
			require.Regexp(t, "no such host", resolve("ip4", "nothing.example"))
			require.Regexp(t, "server misbehaving", resolve("ip4", "broken.example"))
		}
		hasIPv6 := "no such host"
		if conn, err := net.Dial("udp6", "[2000::1]:9"); err == nil {
			require.NoError(t, conn.Close())
			hasIPv6 = `\[2001:db8::7\]`
		}
		require.Regexp(t, hasIPv6, inside(t, kind, config, "resolve", "udp", "ip6", "web.example"))
		config.Resolvers = func() []string { return nil }
		require.Regexp(t, "server misbehaving", inside(t, kind, config, "resolve", "udp", "ip4", "web.example"), "this machine has no resolver")
	})
}

// A name whose address changes to one of this machine after a check is still refused: the check
// applies to the dialed address.
func TestNameOfThisMachineIsRefused(t *testing.T) {
	t.Parallel()
	server := serveDNS(t)
	config := netstack.Config{Resolvers: func() []string { return []string{server} }}
	s := start(t, netdevice.Veth, config, "resolve", "udp", "ip4", "rebound.example")
	require.Equal(t, "[127.0.0.1]", s.wait(t))
	s = start(t, netdevice.Veth, config, "resolve", "udp", "ip4", "web.example")
	require.Equal(t, "[10.1.2.3]", s.wait(t))
	require.Equal(t, "web.example", s.network.NameOf(netip.MustParseAddr("10.1.2.3")))
}

func TestOnlyGatewayAnswersPings(t *testing.T) {
	t.Parallel()
	require.Equal(t, "answered", inside(t, netdevice.Veth, netstack.Config{}, "raw", "192.168.127.1"))
	require.Regexp(t, "timeout", inside(t, netdevice.Veth, netstack.Config{}, "raw", "8.8.8.8"))
}

func TestConnectionsAreLimited(t *testing.T) {
	t.Parallel()
	server := serve(t, "127.0.0.1:0")
	s := start(t, netdevice.Veth, redirect(internet, server), "many", internet, strconv.Itoa(netstack.MaxConnections+20))
	require.Equal(t, strconv.Itoa(netstack.MaxConnections), s.wait(t))
	refusals, _ := s.network.Refusals(0)
	require.Len(t, refusals, 1)
	require.Equal(t, netstack.Limited, refusals[0].Verdict)
	// The client and its connections have ended.
	require.Eventually(t, func() bool { return s.network.Open() == 0 }, waitLimit, 10*time.Millisecond)
}

// TestConnectionsOfCrowdedSandboxHaveSmallBuffers: the buffers bound the memory of this process
// that a sandbox can use.
func TestConnectionsOfCrowdedSandboxHaveSmallBuffers(t *testing.T) {
	t.Parallel()
	const more = 16
	server := serve(t, "127.0.0.1:0")
	s := start(t, netdevice.Veth, redirect(internet, server), "ask")
	for range netstack.RoomyConnections + more {
		require.Equal(t, "ok", s.ask(t, "keep", internet))
	}
	require.EqualValues(t, netstack.RoomyConnections*2*256<<10+more*2*32<<10, s.network.BufferBytes())
}

func TestLongestIdleFlowIsEvicted(t *testing.T) {
	t.Parallel()
	echo := serveUDP(t, func(b []byte) []byte { return b })
	many := strconv.Itoa(netstack.MaxFlows + 50)
	require.Equal(t, many, inside(t, netdevice.Veth, redirect(internet, echo), "flows", internet, many))
}

// Sandboxes that end during dials and transfers leave no goroutine (checked by TestMain) and end
// soon.
func TestNetworksEndAmidTransfers(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, kind netdevice.Kind) {
		config := redirect(internet, serve(t, "127.0.0.1:0"))
		for i := range 8 {
			args := []string{"storm", internet}
			if i%2 == 0 {
				args = []string{"down", internet, strconv.Itoa(1 << 40)}
			}
			s := start(t, kind, config, args...)
			require.Eventually(t, func() bool { return s.network.Open() > 0 }, waitLimit, time.Millisecond)
			require.NoError(t, s.cmd.Process.Kill())
			s.wait(t)
			closed := make(chan struct{})
			go func() {
				defer close(closed)
				s.network.Close()
			}()
			select {
			case <-closed:
			case <-time.After(waitLimit):
				require.FailNow(t, "the network does not close")
			}
		}
	})
}

func TestRefusalsOfDestinationAreCountedByMinute(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	log := netstack.NewRefusalLog(func() time.Time { return now })
	a, b := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
	for range 5 {
		log.Add(a, 80)
	}
	log.Add(b, 80)
	refusals, last := log.After(0)
	require.Len(t, refusals, 2, "the first of each at once")
	require.Equal(t, []int{1, 1}, []int{refusals[0].Count, refusals[1].Count})
	now = now.Add(59 * time.Second)
	log.Add(a, 80)
	refusals, _ = log.After(last)
	require.Empty(t, refusals)
	now = now.Add(time.Second)
	refusals, last = log.After(last)
	require.Len(t, refusals, 1, "the rest when the minute has passed")
	require.Equal(t, 5, refusals[0].Count)
	now = now.Add(2 * time.Minute)
	refusals, _ = log.After(last)
	require.Empty(t, refusals)
}

func TestDestinationsOfRefusalsAreLimited(t *testing.T) {
	t.Parallel()
	log := netstack.NewRefusalLog(time.Now)
	for i := range netstack.MaxRefusals + 100 {
		log.Add(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 80)
	}
	_, last := log.After(0)
	require.EqualValues(t, netstack.MaxRefusals+1, last, "all that are too many are one")
	refusals, _ := log.After(last - 1)
	require.False(t, refusals[0].IP.IsValid())
}
