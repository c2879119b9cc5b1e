package follow

import (
	"runtime"
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/runner/workspace"
)

// TestScanRestoresSettingsOfProcess checks that a scan leaves the runner with one processor and its normal
// collections of garbage, also if two scans overlap.
func TestScanRestoresSettingsOfProcess(t *testing.T) { //nolint:paralleltest // it changes the process
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	before := debug.SetGCPercent(100)
	defer debug.SetGCPercent(before)
	first, second := inParallel(), inParallel()
	first()
	require.Equal(t, workspace.Listers, runtime.GOMAXPROCS(0), "the second one is not over")
	second()
	require.Equal(t, 1, runtime.GOMAXPROCS(0))
	require.Equal(t, 100, debug.SetGCPercent(100))
	inParallel()()
	require.Equal(t, 1, runtime.GOMAXPROCS(0))
	require.Equal(t, 100, debug.SetGCPercent(100))
}
