// Package autoscaledworkers replaces the module go.temporal.io/auto-scaled-workers, with which a
// Temporal server starts workers in clouds: on Kubernetes, AWS and Google Cloud. A development
// server has no cloud, the feature is off by default, and the module's clients are a quarter of the
// compiled code. go.mod names the replacement.
//
// It exports only the names that the server uses, without an implementation. Worker deployments and
// their versions work; a compute configuration of a version is refused.
package autoscaledworkers
