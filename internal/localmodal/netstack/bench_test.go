package netstack_test

import (
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/hostports"
	"github.com/overwinter-dev/overwinter/internal/localmodal/netdevice"
	"github.com/overwinter-dev/overwinter/internal/localmodal/netstack"
)

// BenchmarkNetwork compares a sandbox's network with the loopback interface of this machine: the
// relative speed of bulk transfer, and the additional time of a request of 100 bytes over a new and
// over an open connection.
func BenchmarkNetwork(b *testing.B) {
	for _, kind := range []netdevice.Kind{netdevice.TUN, netdevice.Veth} {
		b.Run(string(kind), func(b *testing.B) {
			if f, err := os.OpenFile("/dev/net/tun", os.O_RDWR, 0); err == nil {
				require.NoError(b, f.Close())
			} else if kind == netdevice.TUN {
				b.Skip("no access to /dev/net/tun")
			}
			server := serve(b, "127.0.0.1:0")
			config := redirect(internet, server)
			compare := func(args ...string) (within, without float64) {
				measure := func(text string) float64 {
					value, err := strconv.ParseFloat(text, 64)
					require.NoError(b, err, text)
					return value
				}
				args = append([]string{args[0], internet}, args[1:]...)
				within = measure(inside(b, kind, config, args...))
				args[1] = server.String()
				return within, measure(outside(b, args...))
			}
			var down, up, downShare, upShare, latency, request float64
			for b.Loop() {
				size := strconv.Itoa(1 << 30)
				within, without := compare("down", size)
				down, downShare = down+within, downShare+within/without
				within, without = compare("up", size)
				up, upShare = up+within, upShare+within/without
				within, without = compare("latency", "5000")
				latency += within - without
				within, without = compare("request", "2000")
				request += within - without
			}
			n := float64(b.N)
			b.ReportMetric(down/n/(1<<20), "MiB/s-in")
			b.ReportMetric(downShare/n, "of-loopback-in")
			b.ReportMetric(up/n/(1<<20), "MiB/s-out")
			b.ReportMetric(upShare/n, "of-loopback-out")
			b.ReportMetric(latency/n/1e3, "µs-more/exchange")
			b.ReportMetric(request/n/1e3, "µs-more/request")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// BenchmarkHostPort alternately measures the additional time, compared with the loopback interface,
// of a request of 100 bytes over a new connection to a port of this machine: through the stack, and
// with kernel sockets.
func BenchmarkHostPort(b *testing.B) {
	measure := func(text string) float64 {
		value, err := strconv.ParseFloat(text, 64)
		require.NoError(b, err, text)
		return value
	}
	server := serve(b, "127.0.0.1:0").(*net.TCPAddr).AddrPort()
	ports, err := hostports.Parse(strconv.Itoa(int(server.Port())))
	require.NoError(b, err)
	listeners, err := netstack.NewHostListeners()
	require.NoError(b, err)
	b.Cleanup(listeners.Close)
	within := netip.AddrPortFrom(netdevice.HostAddress, server.Port()).String()
	size := strconv.Itoa(256 << 20)
	var stack, sockets, loopback, down, up []float64
	for b.Loop() {
		loopback = append(loopback, measure(outside(b, "request", server.String(), "1000")))
		stack = append(stack, measure(inside(b, netdevice.TUN, netstack.Config{HostPorts: ports}, "request", within, "1000")))
		config := netstack.Config{HostPorts: ports, Listeners: listeners}
		sockets = append(sockets, measure(inside(b, netdevice.TUN, config, "request", within, "1000")))
		down = append(down, measure(inside(b, netdevice.TUN, config, "down", within, size))/measure(outside(b, "down", server.String(), size)))
		up = append(up, measure(inside(b, netdevice.TUN, config, "up", within, size))/measure(outside(b, "up", server.String(), size)))
	}
	median := func(values []float64) float64 {
		slices.Sort(values)
		return values[len(values)/2]
	}
	b.ReportMetric(median(loopback)/1e3, "µs-loopback")
	b.ReportMetric((median(stack)-median(loopback))/1e3, "µs-more/stack")
	b.ReportMetric((median(sockets)-median(loopback))/1e3, "µs-more/sockets")
	b.ReportMetric(median(down), "of-loopback-in")
	b.ReportMetric(median(up), "of-loopback-out")
	b.ReportMetric(0, "ns/op")
}
