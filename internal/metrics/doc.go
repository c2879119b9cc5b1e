// Package metrics declares what workers and apis measure, for Prometheus. docs/operations.md lists every metric.
//
// Labels are bounded: agents are those of the catalog, and nothing that a client chooses or that names one session is a label.
package metrics
