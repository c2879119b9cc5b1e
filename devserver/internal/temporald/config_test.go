package temporald

import (
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func valid() Config {
	return Config{
		IP: netip.MustParseAddr("127.0.0.1"), Port: 7233, UIPort: 8233, Sync: SyncNormal,
		Namespace: "default", Retention: DefaultRetention,
	}
}

func TestValidateNamesField(t *testing.T) {
	t.Parallel()
	require.NoError(t, valid().Validate())
	for want, change := range map[string]func(*Config){
		"ip: ":                             func(c *Config) { c.IP = netip.Addr{} },
		"port: 65536 is not":               func(c *Config) { c.Port = 65536 },
		"ui port: -1 is not":               func(c *Config) { c.UIPort = -1 },
		"ui port: 7233 is the frontend's":  func(c *Config) { c.UIPort = c.Port },
		"namespace: ":                      func(c *Config) { c.Namespace = "" },
		"retention: 59m0s is less than":    func(c *Config) { c.Retention = 59 * time.Minute },
		`sync: "off" is neither "normal" `: func(c *Config) { c.Sync = "off" },
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			c := valid()
			change(&c)
			require.ErrorContains(t, c.Validate(), want)
		})
	}
}

// TestServicesStayOnLoopback checks that a server with a public address exposes only its frontend.
func TestServicesStayOnLoopback(t *testing.T) {
	t.Parallel()
	for ip, want := range map[string]struct{ frontend, internal string }{
		"127.0.0.1": {"127.0.0.1:7233", "127.0.0.1"},
		"127.0.0.7": {"127.0.0.7:7233", "127.0.0.7"},
		"0.0.0.0":   {"127.0.0.1:7233", "127.0.0.1"},
		"192.0.2.1": {"192.0.2.1:7233", "127.0.0.1"},
		"::1":       {"[::1]:7233", "::1"},
		"::":        {"[::1]:7233", "::1"},
	} {
		t.Run(ip, func(t *testing.T) {
			t.Parallel()
			c := valid()
			c.IP = netip.MustParseAddr(ip)
			require.Equal(t, want.frontend, c.frontendAddress())
			services := c.serverConfig(nil, servicePorts{history: 1, matching: 2, worker: 3}).Services
			require.Len(t, services, 4)
			for name, service := range services {
				bound := want.internal
				if name == "frontend" {
					bound = ip
				}
				require.Equal(t, bound, service.RPC.BindOnIP, name)
			}
		})
	}
}
