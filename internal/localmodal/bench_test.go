package localmodal_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	modal "github.com/modal-labs/modal-client/go"
	"github.com/stretchr/testify/require"
)

// BenchmarkLife measures one round of a sandbox's life through the SDK and
// reports the median of each step. The first number is that of the files that
// the sandbox has changed.
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
