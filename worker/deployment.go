package worker

import (
	"time"

	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
)

// Deployment names the Temporal worker deployment of an installation, and the build of this worker.
type Deployment struct {
	// Name of the deployment. Default: the name of the installation's deployment, see DeploymentOf.
	Name string
	// Build is the version of the deployment to which this worker pins the workflows of sessions.
	// Default: they are not pinned, and the deployment is only checked for workflows that other
	// workers have pinned.
	Build string
	// StrandedEvery is the interval at which the worker looks for workflows that are pinned to a
	// build without workers: no worker of the build has polled for StrandedAfter. Default 30s and
	// 3m.
	StrandedEvery, StrandedAfter time.Duration
}

// MinStrandedAfter is longer than an empty poll, after which a worker polls again.
const MinStrandedAfter = 90 * time.Second

// DeploymentOf returns the name of the worker deployment of an installation.
func DeploymentOf(installation string) string { return "overwinter-" + installation }

func (d Deployment) withDefaults(installation string) Deployment {
	if d.Name == "" {
		d.Name = DeploymentOf(installation)
	}
	if d.StrandedEvery == 0 {
		d.StrandedEvery = 30 * time.Second
	}
	if d.StrandedAfter == 0 {
		d.StrandedAfter = 3 * time.Minute
	}
	return d
}

// options returns a poller's deployment options for Temporal.
func (d Deployment) options() worker.DeploymentOptions {
	if d.Build == "" {
		return worker.DeploymentOptions{}
	}
	return worker.DeploymentOptions{
		UseVersioning: true,
		Version:       worker.WorkerDeploymentVersion{DeploymentName: d.Name, BuildID: d.Build},
		// Reconciliations and deliveries take the current build with each task: a delivery may wait for hours.
		DefaultVersioningBehavior: workflow.VersioningBehaviorAutoUpgrade,
	}
}
