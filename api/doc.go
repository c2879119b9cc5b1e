// Package api implements the HTTP API of overwinter, which openapi.yaml describes. No other package
// uses Echo.
//
//	client ──▶ routes ──▶ body, validate ──▶ Store (Postgres)         the promise
//	                                    └──▶ Signaler (Temporal)  signals
//	client ◀── events ◀── Events (the log in Postgres)
//
// Invariants:
//
//   - A prompt is answered with 202 only after its row is committed. The signal that follows may
//     fail: a relay re-sends signals for rows that no run has claimed.
//   - A request that is refused with a 4xx has changed nothing.
//   - Reads only use Postgres; only the route `state` queries a workflow. No read wakes a sandbox.
//   - A command is checked against the session's row, which may be older than the workflow's state.
//     The workflow checks it again and ignores a command that is no longer possible.
//   - A stream is one goroutine. It only holds the batch of events that it is writing, which it
//     shares with the other streams of the session.
//
// Failures:
//
//	Postgres does not answer   503 unavailable, nothing promised
//	Temporal does not answer   prompts and creates are accepted; commands and state are 503
//	a reader is slow           its stream is closed when a write has waited for 10 s
//	the server stops           streams end at once, other requests have 10 s
//	a handler panics           500 internal without details; the log has the stack
package api
