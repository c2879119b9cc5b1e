// Package task is a running sandbox from the perspective of Modal's API: processes whose streams
// can be read from any position, ports that are reachable from outside, and the time since the last
// use.
//
//	client ──stdin──▶ pipe ─▶ process ─▶ pipe ──pump──▶ Output ──Follow──▶ any number of readers
//
// Invariants:
//
//   - A process keeps running when its readers disconnect; its output is kept until the task is
//     closed or, after the end of the process, for Retention.
//   - Starting a process is idempotent for its id.
//   - Close returns when all goroutines and processes of the task have ended.
package task
