// Package autoscaledworkers replaces the module go.temporal.io/auto-scaled-workers, with which a Temporal server starts workers in
// clouds: on Kubernetes, AWS and Google Cloud. A development server has no cloud, the feature is off by default, and the module's
// clients are a quarter of what a server is compiled from. The replacement is named in go.mod.
//
// It exports what the server names, and nothing else: that nothing scales. Worker deployments and their versions work; a compute
// configuration of a version is refused.
package autoscaledworkers
