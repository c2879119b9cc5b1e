// Package task is a running sandbox as Modal's API sees it: processes whose streams can be read
// from any position, ports reachable from outside, and a measure of how long it has been idle.
//
//	client ──stdin──▶ pipe ─▶ process ─▶ pipe ──pump──▶ Output ──Follow──▶ any number of readers
//
// Invariants:
//
//   - A process runs on when its readers leave; what it writes is kept until the
//     task is closed or, once it has ended, for Retention.
//   - A process started twice under one id is started once.
//   - Close returns when no goroutine and no process of the task is left.
package task
