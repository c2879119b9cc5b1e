package workflows

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/workflow"
)

// TestLostWorkerIsNoticedSoon checks the timeouts of the activities. Temporal notices that a worker
// was killed when a heartbeat is missing, or otherwise when the activity times out.
func TestLostWorkerIsNoticedSoon(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]workflow.ActivityOptions{
		"record": recordOptions, "provision": provisionOptions, "save": saveOptions, "command": commandOptions,
		"terminate": terminateOptions, "flush": flushOptions, "abort": abortOptions, "turn": turnOptions, "reconcile": reconcileOptions,
	} {
		noticed := o.StartToCloseTimeout
		if o.HeartbeatTimeout > 0 {
			noticed = o.HeartbeatTimeout
		}
		require.LessOrEqual(t, noticed, 18*time.Second, name)
	}
}
