package localmodal_test

import (
	"fmt"
	"net"
	"slices"
	"testing"
	"time"

	modal "github.com/modal-labs/modal-client/go"
	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/hostports"
	"github.com/overwinter-dev/overwinter/internal/localmodal"
	"github.com/overwinter-dev/overwinter/internal/localmodal/box"
	"github.com/overwinter-dev/overwinter/internal/localmodal/localmodaltest"
	"github.com/overwinter-dev/overwinter/internal/memorytest"
)

// BenchmarkLife measures one round of a sandbox's life through the SDK and reports the median of
// each step. The first number is the number of files that the sandbox has changed.
func BenchmarkLife(b *testing.B) {
	for _, files := range []int{1, 1000} {
		b.Run(fmt.Sprintf("files=%d", files), func(b *testing.B) { benchmarkLife(b, files) })
	}
}

func benchmarkLife(b *testing.B, files int) {
	b.Helper()
	s := setup(b)
	_, err := s.image.Build(s.ctx, s.app, nil)
	require.NoError(b, err)
	steps := map[string][]time.Duration{}
	measure := func(name string, f func()) {
		started := time.Now()
		f()
		steps[name] = append(steps[name], time.Since(started))
	}
	for b.Loop() {
		var sb, restored *modal.Sandbox
		var im *modal.Image
		measure("create", func() { sb = s.create(nil) })
		s.sh(sb, fmt.Sprintf("mkdir /root/d && cd /root/d && for i in $(seq %d); do head -c 8192 /dev/zero > f$i; done", files))
		measure("exec", func() { s.exec(sb, nil, "", "true") })
		measure("write", func() { require.NoError(b, sb.Filesystem.WriteText(s.ctx, "x", "/root/x", nil)) })
		measure("snapshot", func() { im = s.snapshot(sb) })
		measure("snapshot-again", func() { s.snapshot(sb) })
		measure("restore", func() { restored = s.createFrom(im, nil) })
		measure("terminate", func() { s.terminate(sb) })
		s.terminate(restored)
	}
	for name, durations := range steps {
		slices.Sort(durations)
		b.ReportMetric(float64(durations[len(durations)/2].Microseconds())/1000, name+"-ms")
	}
}

// BenchmarkStartWithHostPorts alternately creates a sandbox with its own network that reaches two
// ports of this machine, and one that reaches none. It reports medians.
func BenchmarkStartWithHostPorts(b *testing.B) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, listener.Close()) })
	listed := fmt.Sprintf("%d,1", listener.Addr().(*net.TCPAddr).Port)
	var servers []*bundle
	for _, text := range []string{"", listed} {
		o := options(b, "")
		o.DataDir = memorytest.Dir(b)
		b.Cleanup(func() { require.NoError(b, localmodaltest.Unlock(o.DataDir)) })
		o.Network = box.OwnedNetwork
		o.HostPorts, err = hostports.Parse(text)
		require.NoError(b, err)
		s, err := localmodal.New(o)
		require.NoError(b, err)
		localmodaltest.Run(b, s)
		servers = append(servers, connect(b, s))
	}
	took := [2][]time.Duration{}
	for b.Loop() {
		for i, s := range servers {
			began := time.Now()
			sb := s.create(nil)
			took[i] = append(took[i], time.Since(began))
			s.terminate(sb)
		}
	}
	for i, name := range []string{"none-ms", "two-ports-ms"} {
		slices.Sort(took[i])
		b.ReportMetric(float64(took[i][len(took[i])/2].Microseconds())/1000, name)
	}
	b.ReportMetric(0, "ns/op")
}
