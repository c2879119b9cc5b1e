// Package postgres stores sessions and their transitions, prompts, runs, the event log (event_log)
// with its fold, transcripts, bundles, snapshots and sandboxes. Temporal decides when things
// happen; the database is the record of what has happened.
//
//	                 ┌───────────── sessions ─────────────┐  the row is the lock and
//	                 │  status · generation · transition  │  holds every counter
//	                 │  last_ordinal · last_seq · head    │
//	                 └─┬─────────┬─────────┬──────────┬───┘
//	session_transitions│  prompts│   events│ sandboxes│  bundles ─▶ snapshots
//	                   │     ▲   │     ▲   │          │
//	                   │   runs ─┘     └─ blocks      └─ transcripts
//
// Queries are in queries/; the code in dbsqlc is generated from them:
//
//	go tool -modfile=tools/tools.mod sqlc generate -f internal/postgres/sqlc.yaml
//
// Migrations go forward only, in numbered files that are never changed once
// released, and run under an advisory lock.
//
// # Invariants
//
//   - Every write is one transaction and begins with the lock of its session's row; writers of many
//     sessions lock them in the order of ids. This rules out deadlocks, and ordinals, seqs,
//     transition numbers and generations have neither gaps nor duplicates.
//   - Changes and the events that report them are committed together. Readers are notified after
//     the commit, by one connection per process: Postgres commits transactions that notify one at a
//     time.
//   - Every call has a deadline. Within a process, one call at a time writes to a session, and at
//     most a quarter of the pool waits for sessions that other transactions have locked.
//   - Times are those of the server, read after the lock, so that they follow the order of events
//     regardless of the writers' clocks.
//   - A session's status changes only along the table of package session, with consecutive
//     transition numbers.
//   - A prompt is queued, processing, or finished. One run has it while it is processing, and a
//     session has at most one open run (runs_one_open).
//   - Only the holder of a run's token can append to it, while the run is open and no newer
//     generation is reserved. An empty token never matches.
//   - An event's row is small: its session is a number (sessions.no), its run and conversation are
//     numbers within the session, and one index, (session_no, seq), serves uniqueness and reading.
//     Writing each frame once needs no index: an append writes the frames after runs.last_frame and
//     advances it, under the lock of the session.
//   - The status terminated is the last event of its session. Unfinished prompts and runs end
//     before it in the same transaction.
//   - A block's row holds its text up to text_seq. Later text is in text_delta events until the
//     agent closes the block or its run ends. Thus writing a delta does not rewrite the whole text,
//     and reading a block does not read the whole log.
//   - A change in a workspace is written once, together with its event; the row has the change's
//     number in the lineage. Reports of a sandbox about its files are checked against bounds.
//   - A snapshot that is chosen for deletion cannot become part of a bundle; one that a bundle
//     needs is never chosen.
//
// # Failures
//
//	what fails                              what the caller sees
//	--------------------------------------  ------------------------------------------------
//	Postgres is down, restarting or full    unavailable; the same call may be made again
//	the response to a commit is lost        unavailable; repeated, it finds its own work
//	a call of an old generation or attempt  illegal_state or ErrFenced, nothing written
//	two callers claim one prompt            one gets it, the other gets the owner
//	text that cannot be stored (NUL)        invalid_request from a client; from an agent it
//	                                        is stored with U+FFFD in its place
//	data of an event that is not JSON       that append is refused, the rest of the batch is stored
//	a process stops inside a transaction    the server ends it after 5 s and frees the lock
//	another transaction holds a session     unavailable after 10 s, naming the session
//	Postgres freezes or vanishes            unavailable after 15 s; 60 s for bulk data
//	a notification is lost                  nothing: readers poll
//	an unexpected violation                 internal; the cause is for the log
package postgres
