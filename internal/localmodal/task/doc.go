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
//   - An output has at most 32 KiB in memory, its newest; the rest is in a file. While the file
//     cannot be written, it is 256 KiB; after that, output is lost and readers get the error. A
//     reader at an older position has a buffer of at most 256 KiB.
//   - Starting a process is idempotent for its id.
//   - Close returns when all goroutines and processes of the task have ended.
package task
