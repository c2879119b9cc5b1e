// Package session defines a session: its states and the steps between them, its prompts and their order, its commands,
// its ids and its limits. It knows no store, no transport and no engine.
//
// What has its own noun is a package. Sessions are made of attachments, profiles, permissions, purges, usage, receipts
// of restores, checkpoint policies, points of forks, breakers and deadlines, whose packages know no session. Runs,
// bundles, listings, messages of agents, and the backlog of all sessions are about sessions; their packages import this
// one. Package contract says how the workflow of a session is reached.
//
// # States
//
// The table in [Next] defines the life of a session. The workflow asks it, and transitions are
// recorded only if it allows them:
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
//	stop leads from every state but terminated to terminated, and forsaken from hibernating:
//	the sandbox ended and nothing is left to wake from. Nothing leads out of terminated.
//
// # Invariants
//
//   - Every status was reached by steps of the table (promise 6). Each step is recorded once, with
//     contiguous numbers. TestRandomEventsNeverLeaveTheTable tests this for Next.
//   - Terminated is the only final state: a session in any other state can be stopped.
//   - A session may own a sandbox in every state but hibernated and terminated.
//   - A session in a state without a sandbox has no run in progress except a parked one, whose agent
//     was stopped while a question is open.
//   - A [Queue] returns each prompt once, in the order of ordinals, regardless of the number and order
//     of its signals; only Requeue returns one again. Its memory is bounded, because the row in
//     Postgres decides: a prompt that the queue has forgotten costs one refused claim.
//   - A prompt has ended when its status is completed, failed, cancelled or unknown, the four outcomes
//     of a run.
//   - Ids made here sort by age within their kind.
//
// # When things fail
//
//	what fails                                 event and state            the current prompt
//	sandbox cannot be made or restored         fail → error               stays queued
//	snapshot cannot be taken or verified       fail → error               stays queued
//	sandbox lost while running                 hibernate (lost) → …       unknown; onUnknown decides
//	sandbox gone, bundle or transcripts left   saved → hibernated         stays queued
//	sandbox gone, nothing left                 forsaken → terminated      cancelled
//	provider's lifetime runs out               hibernate (lifetime) → …   finished first or aborted
//	agent crashes                              none: still running        failed, agent_crashed
//	stop                                       stop → terminated          cancelled
//	an event that the table does not have      none: an error             untouched
package session
