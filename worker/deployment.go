package worker

import (
	"time"

	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
)

// Deployment says which worker deployment of Temporal the workers of an installation are, and which build this worker is.
type Deployment struct {
	// Name of the deployment. Default: that of the installation, see DeploymentOf.
	Name string
	// Build is the version of the deployment that the workflows of sessions are pinned to while this worker has them. Default: they
	// are not pinned, and the deployment is only looked at for workflows that others have pinned.
	Build string
	// StrandedEvery is how often the worker looks for workflows that are pinned to a build without workers, and StrandedAfter how long
	// no worker of that build must have polled. Default 30s and 3m.
	StrandedEvery, StrandedAfter time.Duration
}

// MinStrandedAfter is more than the time after which a poll that has found nothing is repeated.
const MinStrandedAfter = 90 * time.Second

// DeploymentOf is the name of the worker deployment of an installation.
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

// options say to Temporal which build a poller is.
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
