package netstack_test

import (
	"os"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/localmodal/netdevice"
)

// BenchmarkNetwork compares a sandbox's network with the loopback interface of this
// machine: bulk transfer as a share of it, and what a request of 100 bytes over a new
// and over an open connection takes longer.
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
