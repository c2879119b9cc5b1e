// Package session defines a session: its states and transitions, its prompts and their order, its
// commands, its ids and its limits. It does not depend on the store, the transport or Temporal.
//
// Each other noun has a package. Sessions consist of attachments, profiles, permissions, purges,
// usage, receipts of restores, checkpoint policies, points of forks, breakers and deadlines, whose
// packages do not know sessions. The packages of runs, bundles, listings, messages of agents, and
// the backlog of all sessions import this one. Package contract defines the interface of a
// session's workflow.
//
// # States
//
// The table in [Next] defines the states of a session. The workflow uses it, and only transitions
// that it allows are recorded:
//
//	                 create
//	                   │
//	                   ▼
//	            ┌──────────────┐         ready          ┌─────────┐
//	            │ initializing │ ─────────────────────▶ │ running │ ◀───────────────┐
//	            └──────────────┘                        └─────────┘                 │
//	                   │ fail                        fail │     │ hibernate         │ ready
//	                   │                                  │     ▼                   │
//	                   │      ┌───────┐              ┌──────────────┐         ┌───────────┐
//	                   └────▶ │ error │ ◀─── fail ── │ hibernating  │         │ restoring │
//	                          └───────┘              └──────────────┘         └───────────┘
//	                           │  ▲  ▲                          │ saved          ▲  ▲  │
//	                           │  │  └─ fail (running)          ▼                │  │  │
//	                           │  │                       ┌────────────┐  wake   │  │  │
//	                           │  │                       │ hibernated │ ────────┘  │  │
//	                           │  │                       └────────────┘            │  │
//	                           │  └──────────────────────── fail ───────────────────┼──┘
//	                           └─────────────────────────── recover ────────────────┘
//
//	stop leads to terminated from every other state, and forsaken from hibernating, if the
//	sandbox ended and there is nothing to restore from. No transition leaves terminated.
//
// # Invariants
//
//   - Every status was reached by transitions of the table (promise 6). Each transition is recorded
//     once, with contiguous numbers. TestRandomEventsNeverLeaveTable tests this for Next.
//   - Terminated is the only final state: a session in any other state can be stopped.
//   - A session may own a sandbox in every state except hibernated and terminated.
//   - A session in a state without a sandbox has no run in progress except a parked one, whose agent
//     was stopped while a question is open.
//   - A [Queue] returns each prompt once, in the order of ordinals, regardless of the number and
//     order of its signals; only Requeue makes it return a prompt again. Its memory is bounded,
//     because the row in Postgres decides: a prompt that the queue has forgotten costs one refused
//     claim.
//   - A prompt has ended when its status is completed, failed, cancelled or unknown, the four outcomes
//     of a run.
//   - Ids generated here sort by age within their kind.
//
// # Failures
//
//	what fails                                 event and state            the current prompt
//	sandbox cannot be created or restored      fail → error               stays queued
//	snapshot cannot be taken or verified       fail → error               stays queued
//	sandbox lost while running                 hibernate (lost) → …       unknown; onUnknown decides
//	sandbox gone, bundle or transcripts left   saved → hibernated         stays queued
//	sandbox gone, nothing left                 forsaken → terminated      cancelled
//	provider's lifetime runs out               hibernate (lifetime) → …   finished first or aborted
//	agent crashes                              none: still running        failed, agent_crashed
//	stop                                       stop → terminated          cancelled
//	an event that the table does not have      none: an error             untouched
package session
