package workflows_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/overwinter-dev/overwinter/internal/contract"
	"github.com/overwinter-dev/overwinter/internal/session"
)

const deploymentName = "overwinter-versions"

// workBuild runs a worker of the given build.
func (r *recorder) workBuild(build string) (stop func()) {
	return r.workAs(worker.DeploymentOptions{
		UseVersioning: true, Version: worker.WorkerDeploymentVersion{DeploymentName: deploymentName, BuildID: build},
		DefaultVersioningBehavior: workflow.VersioningBehaviorPinned,
	})
}

// makeCurrent makes new workflows start on a build.
func (r *recorder) makeCurrent(build string) {
	require.Eventually(r.t, func() bool {
		_, err := r.client.WorkerDeploymentClient().GetHandle(deploymentName).SetCurrentVersion(r.t.Context(), client.WorkerDeploymentSetCurrentVersionOptions{BuildID: build})
		return err == nil
	}, time.Minute, 100*time.Millisecond, "the workers of the build have polled")
}

// build returns the build to which the newest run of the session's workflow is pinned.
func (r *recorder) build() string {
	d, err := r.client.DescribeWorkflowExecution(r.t.Context(), r.world.id, "")
	require.NoError(r.t, err)
	return d.GetWorkflowExecutionInfo().GetVersioningInfo().GetDeploymentVersion().GetBuildId()
}

func (r *recorder) completes() {
	require.NoError(r.t, r.client.GetWorkflow(r.t.Context(), r.world.id, "").Get(r.t.Context(), nil))
}

// signalPrompt signals a prompt as the api does, which starts the workflow if none is open.
func (r *recorder) signalPrompt(id string, takes time.Duration) {
	r.world.mu.Lock()
	p := r.world.accept(promptRow{QueuedPrompt: session.QueuedPrompt{ID: id}, takes: takes})
	r.world.mu.Unlock()
	_, err := r.client.SignalWithStartWorkflow(r.t.Context(), r.world.id, contract.SignalPrompt,
		contract.PromptSignal{PromptID: id, Ordinal: p.Ordinal, At: time.Now()},
		client.StartWorkflowOptions{ID: r.world.id, TaskQueue: recordedQueues.Control}, contract.WorkflowName, contract.WorkflowInput{SessionID: r.world.id})
	require.NoError(r.t, err)
}

// TestSessionCrossesToNextBuildAtItsWake runs two builds of the worker at once. An awake session
// stays on the build on which it was started, completes its workflow when it hibernates, and wakes
// on the current build. The same applies to a session that only moves to another sandbox.
func TestSessionCrossesToNextBuildAtItsWake(t *testing.T) {
	t.Parallel()
	r := setupEngine(t, "versions")
	r.world.versioned = true
	stopFirst := r.workBuild("v1")
	r.makeCurrent("v1")
	r.start()
	r.signalPrompt("p1", 20*time.Millisecond)
	r.awaitEnd("p1")
	require.Equal(t, "v1", r.build())

	t.Cleanup(r.workBuild("v2"))
	r.makeCurrent("v2")
	r.signalPrompt("p2", 20*time.Millisecond)
	r.awaitEnd("p2")
	require.Equal(t, "v1", r.build(), "pinned while it is awake")
	r.command(session.CommandHibernate)
	r.reach(session.Hibernated)
	r.completes()
	stopFirst() // the session is hibernated
	r.signalPrompt("p3", 20*time.Millisecond)
	r.awaitEnd("p3")
	require.Equal(t, "v2", r.build(), "the next wake is on the current build")

	t.Cleanup(r.workBuild("v3"))
	r.makeCurrent("v3")
	r.signalPrompt("p4", 20*time.Millisecond)
	r.awaitEnd("p4")
	require.Equal(t, "v2", r.build())
	r.command(session.CommandRestart)
	r.settled()
	r.reach(session.Running)
	r.signalPrompt("p5", 20*time.Millisecond)
	r.awaitEnd("p5")
	require.Equal(t, "v3", r.build(), "a new sandbox is on the current build")

	r.command(session.CommandStop)
	r.reach(session.Terminated)
	r.completes()
	r.world.mu.Lock()
	defer r.world.mu.Unlock()
	require.Empty(t, r.world.violations)
	for _, p := range r.world.prompts {
		require.Equal(t, session.PromptCompleted, p.status, p.ID)
		require.Equal(t, 1, p.deliveries, p.ID)
	}
}
