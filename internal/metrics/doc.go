// Package metrics declares the Prometheus metrics of workers and apis. docs/operations.md lists
// every metric.
//
// Labels are bounded: agents are those of the catalog, and no label contains a value chosen by a
// client or identifies a session.
package metrics
