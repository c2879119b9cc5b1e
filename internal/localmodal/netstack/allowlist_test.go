package netstack_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/hostports"
	"github.com/overwinter-dev/overwinter/internal/localmodal/netdevice"
	"github.com/overwinter-dev/overwinter/internal/localmodal/netstack"
)

func TestAllowlistOfCIDRsRestrictsConnections(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, kind netdevice.Kind) {
		server, dns := serve(t, "127.0.0.1:0"), serveDNS(t)
		to := netip.MustParseAddrPort(server.String())
		config := redirect(internet, server).Redirect(netip.MustParseAddrPort("203.0.113.7:80"), to)
		config.Resolvers = func() []string { return []string{dns} }
		ports, err := hostports.Parse("80")
		require.NoError(t, err)
		config.HostPorts = ports
		config.Allow, err = netstack.ParseAllowlist([]string{"198.51.100.9/24", "10.0.0.0/8"}, nil)
		require.NoError(t, err)

		s := start(t, kind, config, "dial", internet, "203.0.113.7:80", "192.168.127.254:80", "10.9.9.9:80")
		lines := strings.Split(s.wait(t), "\n")
		require.Len(t, lines, 4)
		require.Regexp(t, "<nil>$", lines[0])
		for _, line := range lines[1:] { // the last one is refused because the list does not widen the policy
			require.Regexp(t, "atOnce=true .*connection refused$", line)
		}
		refusals, _ := s.network.Refusals(0)
		require.Len(t, refusals, 3)
		require.Regexp(t, "connection refused$", inside(t, kind, config, "udp", "203.0.113.7:80", "10"))
		require.Equal(t, "[10.1.2.3]", inside(t, kind, config, "resolve", "udp", "ip4", "web.example"), "names resolve to listed addresses")
		require.Regexp(t, "server misbehaving|no such host", inside(t, kind, config, "resolve", "udp", "ip4", hostports.Name))
	})
}

func TestAllowlistOfDomainsRestrictsConnections(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, kind netdevice.Kind) {
		server, dns := serve(t, "127.0.0.1:0"), serveDNS(t)
		config := redirect("10.1.2.3:80", server)
		config.Resolvers = func() []string { return []string{dns} }
		visit := func(domain, name string) string {
			var err error
			config.Allow, err = netstack.ParseAllowlist(nil, []string{domain})
			require.NoError(t, err)
			return inside(t, kind, config, "visit", name, "80")
		}
		require.Equal(t, "connected", visit("web.example", "web.example"))
		require.Equal(t, "connected", visit("*.example", "web.example"))
		require.Equal(t, "connected", visit("*", "web.example"))
		require.Regexp(t, "server misbehaving|no such host", visit("other.example", "web.example"))
		require.Regexp(t, "server misbehaving|no such host", visit("*.web.example", "web.example"))
		require.Regexp(t, "server misbehaving|no such host", visit("eb.example", "web.example"))
		require.Regexp(t, "connection refused$", visit("rebound.example", "rebound.example"), "the list does not widen the policy")

		config.Allow, _ = netstack.ParseAllowlist(nil, []string{"web.example"})
		require.Regexp(t, "connection refused$", inside(t, kind, config, "dial", "10.1.2.3:80"), "DNS has not given the address")
		config.Allow = &netstack.Allowlist{}
		require.Regexp(t, "server misbehaving|no such host", inside(t, kind, config, "visit", "web.example", "80"), "an empty list allows nothing")
	})
}

func TestAddressesOfAllowedNamesAreForgotten(t *testing.T) {
	t.Parallel()
	var known netstack.AllowedAddresses
	now := time.Now()
	first := netip.MustParseAddr("198.51.100.1")
	known.Learn(first, now)
	require.True(t, known.Has(netip.MustParseAddr("::ffff:198.51.100.1"), now.Add(59*time.Minute)))
	require.False(t, known.Has(first, now.Add(time.Hour)))
	ip := netip.MustParseAddr("203.0.113.0")
	for i := range netstack.MaxNames {
		ip = ip.Next()
		known.Learn(ip, now.Add(time.Duration(i+1)))
	}
	require.False(t, known.Has(first, now), "the oldest makes room")
	require.True(t, known.Has(ip, now))
}

func TestAllowlistsAreChecked(t *testing.T) {
	t.Parallel()
	for _, cidr := range []string{"", "not-an-ip/8", "10.0.0.1", "10.0.0.0/33"} {
		_, err := netstack.ParseAllowlist([]string{cidr}, nil)
		require.ErrorContains(t, err, "Invalid CIDR (outbound IPv4): "+cidr)
	}
	for _, domain := range []string{"", "not a valid domain!", "*.", "a.*.b", "**", "-a.b", "1.2.3.4", "::1", strings.Repeat("a", 64), strings.Repeat("a.", 130) + "b"} {
		_, err := netstack.ParseAllowlist(nil, []string{domain})
		require.Error(t, err, domain)
	}
	_, err := netstack.ParseAllowlist(slices.Repeat([]string{"10.0.0.0/8"}, 257), nil)
	require.ErrorContains(t, err, "at most 256")
	list, err := netstack.ParseAllowlist([]string{"2001:db8::1/32"}, []string{"Example.COM.", "*.github.com"})
	require.NoError(t, err)
	require.Equal(t, &netstack.Allowlist{
		Prefixes: []netip.Prefix{netip.MustParsePrefix("2001:db8::/32")}, Domains: []string{"example.com", "*.github.com"},
	}, list)
}
