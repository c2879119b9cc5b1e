package worker_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/workflowservice/v1"

	"github.com/overwinter-dev/overwinter/activities"
	"github.com/overwinter-dev/overwinter/internal/backlog"
	"github.com/overwinter-dev/overwinter/internal/contract"
	"github.com/overwinter-dev/overwinter/internal/postgres/postgrestest"
	"github.com/overwinter-dev/overwinter/internal/sandbox"
	"github.com/overwinter-dev/overwinter/internal/sandbox/memsandbox"
	"github.com/overwinter-dev/overwinter/worker"
)

// reached is a client for which all workflows are open.
type reached struct{}

func (reached) Revive(context.Context, backlog.Attended) (bool, error)    { return false, nil }
func (reached) SignalPrompt(context.Context, string, string, int64) error { return nil }

func (reached) SignalSandbox(context.Context, string, contract.SandboxSignal) error { return nil }

// TestCompletedReconciliationsLeaveList checks that completed reconciliations are deleted: the
// schedule starts a workflow at every interval, but people look for sessions in the list.
func TestCompletedReconciliationsLeaveList(t *testing.T) {
	t.Parallel()
	c, db := dial(t), postgrestest.New(t)
	driver := memsandbox.New()
	t.Cleanup(func() { require.NoError(t, driver.Close()) })
	const installation = "looks"
	logger := slog.New(slog.DiscardHandler)
	control, turns := activities.New(activities.Config{
		Store: db, Sandbox: sandbox.NewProvider(driver, sandbox.Options{Installation: installation, Logger: logger}), Signaler: reached{}, Logger: logger,
	})
	start(t, worker.Config{
		Temporal: c, Control: control, Turns: turns, Installation: installation, Relay: worker.Relay{Rows: nothing{}, Signaler: &signaler{}},
		ReconcileEvery: time.Second, ForgetEvery: 2 * time.Second,
	})
	t.Cleanup(func() {
		c.ScheduleClient().GetHandle(context.Background(), contract.ScheduleOf(installation)).Delete(context.Background()) //nolint:errcheck // the server ends with the tests
	})
	listed := map[string]bool{} // runs that were ever completed
	require.Eventually(t, func() bool {
		found, err := c.ListWorkflow(t.Context(), &workflowservice.ListWorkflowExecutionsRequest{
			Query: fmt.Sprintf("TemporalScheduledById = '%s' AND ExecutionStatus = 'Completed'", contract.ScheduleOf(installation)),
		})
		if err != nil {
			return false
		}
		for _, e := range found.GetExecutions() {
			listed[e.GetExecution().GetRunId()] = true
		}
		return len(listed) >= 4 && len(found.GetExecutions()) < len(listed)
	}, waitLimit, 50*time.Millisecond, "some were completed, and some of them are not listed any more")
}
