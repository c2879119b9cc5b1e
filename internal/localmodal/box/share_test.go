package box

import (
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

// TestBoxesShareFewerCPUsWhileTheServerWaits has the server wait for CPU time, and get it again.
func TestBoxesShareFewerCPUsWhileTheServerWaits(t *testing.T) {
	t.Parallel()
	var a shareAccount
	at, s := time.Now(), schedulerTime{}
	look := func(ran, waited time.Duration) float64 {
		at = at.Add(watchInterval)
		s.ran, s.waited = s.ran+ran, s.waited+waited
		return a.next(s, at)
	}
	const busy = watchInterval / 20
	require.InDelta(t, 1, look(time.Hour, time.Hour), 0, "what was before the first look does not count")
	require.InDelta(t, 1, look(busy, watchInterval), 0, "it waited once")
	require.InDelta(t, 1, look(busy, watchInterval), 0, "twice")
	require.InDelta(t, leastShare, look(busy, watchInterval), 0)
	require.InDelta(t, leastShare, look(busy, watchInterval), 0, "it is not limited further")
	require.InDelta(t, leastShare+shareStep, look(busy, busy), 1e-9)
	require.InDelta(t, leastShare+2*shareStep, look(watchInterval, watchInterval), 1e-9, "it computes more than it waits")
	require.InDelta(t, leastShare+2*shareStep, look(busy, watchInterval), 1e-9, "it waited once")
	for range int(1 / shareStep) {
		look(0, 0)
	}
	require.InDelta(t, 1, a.share, 0)
	look(busy, watchInterval)
	look(busy, watchInterval)
	at = at.Add(time.Hour) // without boxes, nothing looks
	require.InDelta(t, 1, look(busy, watchInterval), 0)
}

// TestTheKernelLimitsAllBoxes writes the limits, with a box that has its own limit.
func TestTheKernelLimitsAllBoxes(t *testing.T) {
	t.Parallel()
	b := setup(t, Options{Isolation: Namespaces})
	c := b.rt.cgroups
	if c == nil {
		t.Skip("no control groups here: ", b.rt.Unlimited())
	}
	quota := func() string {
		group, file := c.groups[""], "cpu.max"
		if c.version == 1 {
			group, file = c.groups["cpu"], "cpu.cfs_quota_us"
		}
		content, err := os.ReadFile(filepath.Join(group, file))
		require.NoError(t, err)
		return strings.Fields(string(content))[0]
	}
	none := quota()
	require.Contains(t, []string{"max", "-1"}, none)
	require.NoError(t, c.setShare(leastShare))
	require.Equal(t, strconv.Itoa(runtime.NumCPU()*sharePeriod/2), quota())
	require.NoError(t, c.setShare(1))
	require.Equal(t, none, quota())

	require.NoError(t, c.setShare(leastShare))
	wide, err := b.rt.Start(t.Context(), Spec{ID: uuid.NewString(), Layers: []string{BaseLayer}, Limits: Limits{CPUs: float64(runtime.NumCPU())}})
	require.NoError(t, err)
	t.Cleanup(wide.Kill)
	require.Equal(t, "2", strings.TrimSpace(b.sh(wide, "echo $((1 + 1))")), "a box with more CPUs than all have starts")
	if c.version == 1 {
		require.Equal(t, none, quota(), "the kernel would refuse it otherwise")
		require.Error(t, c.setShare(leastShare), "and the limit of all, as long as the box is there")
	}
}

// TestTheSchedulerTimeOfAProcessGrows reads it twice.
func TestTheSchedulerTimeOfAProcessGrows(t *testing.T) {
	t.Parallel()
	before, err := readSchedulerTime()
	require.NoError(t, err)
	if before.ran == 0 {
		t.Skip("the kernel does not count it")
	}
	for deadline := time.Now().Add(waitLimit); ; {
		after, err := readSchedulerTime()
		require.NoError(t, err)
		if after.ran > before.ran {
			return
		}
		require.True(t, time.Now().Before(deadline), "%v, before %v", after, before)
	}
}
