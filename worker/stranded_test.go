package worker_test

import (
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/overwinter-dev/overwinter/internal/contract"
	"github.com/overwinter-dev/overwinter/internal/session"
	"github.com/overwinter-dev/overwinter/internal/sessionclient"
	"github.com/overwinter-dev/overwinter/worker"
)

// builds are the workers of a deployment in a test. Their workflow is that of a session that stays awake.
type builds struct {
	temporal     client.Client
	installation string
	signals      *sessionclient.Client
}

func newBuilds(t *testing.T, installation string) *builds {
	t.Helper()
	b := &builds{temporal: dial(t), installation: installation}
	b.signals = sessionclient.New(b.temporal, "default", sessionclient.At(contract.QueuesOf(installation).Control))
	return b
}

// poll runs a worker of a build; "" means one without.
func (b *builds) poll(t *testing.T, build string) (stop func()) {
	t.Helper()
	w := sdkworker.New(b.temporal, contract.QueuesOf(b.installation).Control, sdkworker.Options{
		DeploymentOptions: worker.DeploymentOptionsOf(worker.Deployment{Build: build}, b.installation),
	})
	w.RegisterWorkflowWithOptions(func(ctx workflow.Context, _ contract.WorkflowInput) error {
		for {
			workflow.GetSignalChannel(ctx, contract.SignalPrompt).Receive(ctx, nil)
		}
	}, workflow.RegisterOptions{Name: contract.WorkflowName, VersioningBehavior: workflow.VersioningBehaviorPinned})
	require.NoError(t, w.Start())
	return w.Stop
}

// makeCurrent makes workflows start on a build; "" means workers without.
func (b *builds) makeCurrent(t *testing.T, build string) {
	t.Helper()
	require.Eventually(t, func() bool {
		_, err := b.temporal.WorkerDeploymentClient().GetHandle(worker.DeploymentOf(b.installation)).SetCurrentVersion(t.Context(),
			client.WorkerDeploymentSetCurrentVersionOptions{BuildID: build})
		return err == nil
	}, waitLimit, 100*time.Millisecond)
}

// session starts a workflow and returns once a worker of a build has it.
func (b *builds) session(t *testing.T, build string) (id string) {
	t.Helper()
	id = session.NewID(session.SessionPrefix)
	require.NoError(t, b.signals.SignalPrompt(t.Context(), id, "p1", 1))
	b.reaches(t, id, build)
	return id
}

// run returns the open run of a workflow, the build that it is pinned to, and whether a worker has
// started it.
func (b *builds) run(t *testing.T, id string) (run, build string, seen bool) {
	t.Helper()
	d, err := b.temporal.DescribeWorkflowExecution(t.Context(), id, "")
	require.NoError(t, err)
	info := d.GetWorkflowExecutionInfo()
	require.Equal(t, enums.WORKFLOW_EXECUTION_STATUS_RUNNING, info.GetStatus())
	return info.GetExecution().GetRunId(), info.GetVersioningInfo().GetDeploymentVersion().GetBuildId(), d.GetPendingWorkflowTask() == nil
}

func (b *builds) reaches(t *testing.T, id, build string) {
	t.Helper()
	require.Eventually(t, func() bool {
		_, on, seen := b.run(t, id)
		return seen && on == build
	}, waitLimit, 50*time.Millisecond)
}

// An empty poll lasts for a minute. Builds whose workers have stopped are checked as if they had
// stopped long ago.
const (
	longerThanAPoll = 5 * time.Minute
	longAgo         = time.Millisecond
)

// look is one search of a worker for workflows to move.
func (b *builds) look(t *testing.T, build string, after time.Duration) (moved int) {
	t.Helper()
	w := worker.New(worker.Config{
		Temporal: b.temporal, Installation: b.installation, Relay: worker.Relay{Signaler: b.signals}, Logger: slog.New(slog.DiscardHandler),
		Deployment: worker.Deployment{Build: build, StrandedAfter: after},
	})
	moved, err := worker.MoveStranded(t.Context(), w)
	if err != nil {
		t.Log(err)
	}
	return moved
}

// TestWorkflowsOfBuildWithoutWorkersAreMoved stops the workers of a build while workflows are
// pinned to it. Without moveStranded, those workflows would wait forever. With it, they start again
// on the current build, or on workers without builds after a rollback to such workers.
func TestWorkflowsOfBuildWithoutWorkersAreMoved(t *testing.T) {
	t.Parallel()
	b := newBuilds(t, "0123456789abcdef000000000057a4ed")
	require.Zero(t, b.look(t, "", longAgo), "there is no deployment")
	stopFirst := b.poll(t, "v1")
	b.makeCurrent(t, "v1")
	id := b.session(t, "v1")
	first, _, _ := b.run(t, id)

	stopSecond := b.poll(t, "v2")
	b.makeCurrent(t, "v2")
	require.Zero(t, b.look(t, "v2", longerThanAPoll), "its workers poll")
	stopFirst()
	require.Eventually(t, func() bool { return b.look(t, "v2", longAgo) == 1 }, waitLimit, 500*time.Millisecond)
	b.reaches(t, id, "v2")
	second, _, _ := b.run(t, id)
	require.NotEqual(t, first, second)
	require.Zero(t, b.look(t, "v2", longAgo))

	t.Cleanup(b.poll(t, ""))
	b.makeCurrent(t, "")
	require.Zero(t, b.look(t, "", longerThanAPoll), "its workers poll")
	stopSecond()
	require.Eventually(t, func() bool { return b.look(t, "", longAgo) == 1 }, waitLimit, 500*time.Millisecond)
	b.reaches(t, id, "")
	third, _, _ := b.run(t, id)
	require.NotEqual(t, second, third)
}

// TestNothingIsMovedWithoutWorkersOfCurrentBuild checks that workflows are not moved while the
// current build has no workers.
func TestNothingIsMovedWithoutWorkersOfCurrentBuild(t *testing.T) {
	t.Parallel()
	b := newBuilds(t, "0123456789abcdef000000000057a4ee")
	stop := b.poll(t, "v1")
	b.makeCurrent(t, "v1")
	id := b.session(t, "v1")
	first, _, _ := b.run(t, id)
	stop()
	require.Zero(t, b.look(t, "v2", longAgo))
	again, _, _ := b.run(t, id)
	require.Equal(t, first, again)
}
