package main

import (
	"context"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	computepb "go.temporal.io/api/compute/v1"
	deploymentpb "go.temporal.io/api/deployment/v1"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
)

// TestWorkerDeploymentsWork registers a version of a worker deployment and describes it. Only its
// compute configuration is refused, because the server starts no workers.
func TestWorkerDeploymentsWork(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.start(t)
	c := b.client(t, "default")
	version := worker.WorkerDeploymentVersion{DeploymentName: "counters", BuildID: "first"}
	w := worker.New(c, "versioned", worker.Options{DeploymentOptions: worker.DeploymentOptions{
		UseVersioning: true, Version: version, DefaultVersioningBehavior: workflow.VersioningBehaviorPinned,
	}})
	w.RegisterWorkflow((&counters{}).Count)
	require.NoError(t, w.Start())
	t.Cleanup(w.Stop)
	named := &deploymentpb.WorkerDeploymentVersion{DeploymentName: version.DeploymentName, BuildId: version.BuildID}
	eventually(t, func(ctx context.Context) error {
		_, err := c.WorkflowService().DescribeWorkerDeploymentVersion(ctx, &workflowservice.DescribeWorkerDeploymentVersionRequest{
			Namespace: "default", DeploymentVersion: named,
		})
		return err
	})
	_, err := c.WorkflowService().ValidateWorkerDeploymentVersionComputeConfig(t.Context(), &workflowservice.ValidateWorkerDeploymentVersionComputeConfigRequest{
		Namespace: "default", DeploymentVersion: named, Identity: "test",
		ComputeConfigScalingGroups: map[string]*computepb.ComputeConfigScalingGroupUpdate{"group": {ScalingGroup: &computepb.ComputeConfigScalingGroup{
			TaskQueueTypes: []enumspb.TaskQueueType{enumspb.TASK_QUEUE_TYPE_WORKFLOW}, Provider: &computepb.ComputeProvider{Type: "k8s"},
		}}},
	})
	var refused *serviceerror.InvalidArgument
	require.ErrorAs(t, err, &refused)
	require.Contains(t, err.Error(), "does not start workers")
}

// TestNoCloudIsCompiledIn keeps clients of clouds that only start workers out of the program: they were a quarter of its compilation.
func TestNoCloudIsCompiledIn(t *testing.T) {
	t.Parallel()
	build, ok := debug.ReadBuildInfo()
	require.True(t, ok)
	require.NotEmpty(t, build.Deps)
	for _, module := range build.Deps {
		for _, unwanted := range []string{"k8s.io/", "github.com/aws/aws-sdk-go-v2/service/lambda", "github.com/aws/aws-sdk-go-v2/service/ecs", "cloud.google.com/go/run"} {
			require.False(t, strings.HasPrefix(module.Path, unwanted), module.Path)
		}
	}
}
