// Package api is the HTTP surface of overwinter: openapi.yaml in code. Echo stays
// inside it.
//
//	client ──▶ routes ──▶ body, validate ──▶ Store (Postgres)         the promise
//	                                    └──▶ Signaler (Temporal)  signals
//	client ◀── events ◀── Events (the log in Postgres)
//
// Invariants:
//
//   - A prompt is answered with 202 only after its row is committed. The signal that follows may
//     fail: a relay signals again for rows that no run has claimed.
//   - A request that is refused with a 4xx has changed nothing.
//   - Reads use Postgres only; the route `state` alone queries a workflow. No read wakes a sandbox.
//   - A command is judged by the session's row, which may be older than the workflow's state. The
//     workflow decides again and ignores a command that has become impossible.
//   - A stream is one goroutine. Of the log it holds only the batch of events that it writes, which
//     it shares with the other streams of the session.
//
// What happens when something fails:
//
//	Postgres does not answer   503 unavailable, nothing promised
//	Temporal does not answer   prompts and creates are accepted; commands and state are 503
//	a reader is slow           its stream is cut after a write has waited 10 s
//	the server stops           streams end at once, other requests have 10 s
//	a handler panics           500 internal without details; the log has the stack
package api
