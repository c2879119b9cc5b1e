package localmodal_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/localmodal/box"
)

// A session that sleeps and wakes for months adds a layer each time.
func TestLayersStayShallowAcrossRestores(t *testing.T) {
	t.Parallel()
	b := setup(t)
	im := b.image
	for i := range box.MaxLayers + 3 {
		sb := b.createFrom(im, nil)
		b.sh(sb, fmt.Sprintf("echo %d >> /root/log; touch /root/f%d; rm -f /root/f%d", i, i, i-1))
		im = b.snapshot(sb)
		b.terminate(sb)
	}
	sb := b.createFrom(im, nil)
	last := box.MaxLayers + 2
	require.Equal(t, fmt.Sprintf("%d\nf%d\nlog\n", last+1, last), b.sh(sb, "wc -l < /root/log; ls /root"))
	if b.server.Isolation() != box.Namespaces {
		return // the root is a copy without layers
	}
	layers := b.sh(sb, "grep '^[^ ]* / overlay ' /proc/mounts | tr ',' '\n' | grep ^lowerdir= | tr ':' '\n' | wc -l")
	require.Equal(t, "5\n", layers, "one merged, three since, and the base")
}
