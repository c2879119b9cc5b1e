// Package postgres keeps what is true: sessions and their transitions, prompts,
// runs, the log of events (event_log) with its fold, transcripts, bundles, snapshots and
// sandboxes. Temporal decides when things happen; what has happened is here.
//
//	                 ┌───────────── sessions ─────────────┐  the row is the lock and
//	                 │  status · generation · transition  │  holds every counter
//	                 │  last_ordinal · last_seq · head    │
//	                 └─┬─────────┬─────────┬──────────┬───┘
//	session_transitions│  prompts│   events│ sandboxes│  bundles ─▶ snapshots
//	                   │     ▲   │     ▲   │          │
//	                   │   runs ─┘     └─ blocks      └─ transcripts
//
// Queries are in queries/, their code in dbsqlc is generated:
//
//	go tool -modfile=tools/tools.mod sqlc generate -f internal/postgres/sqlc.yaml
//
// Migrations go forward only, in numbered files that are never changed once
// released, and run under an advisory lock.
//
// # Invariants
//
//   - Every write is one transaction and begins with the lock of its session's row;
//     writers of many sessions lock them in the order of ids. So there are no
//     deadlocks, and ordinals, seqs, transition numbers and generations have neither
//     holes nor doubles.
//   - Changes and the events that report them are committed together. Readers are notified after
//     the commit, by one connection per process: Postgres commits transactions that notify one at a
//     time.
//   - Every call has a deadline. One call per process at a time writes to a session,
//     and a quarter of the pool at most waits for sessions that others hold.
//   - Times are the server's, read after the lock, so that they follow the order of
//     events whatever the clocks of the writers say.
//   - A session's status moves along the table of package session only, one
//     transition number after the other.
//   - A prompt is queued, processing, or over. One run has it while it is processing,
//     and a session has one run that is not over at most (runs_one_open).
//   - A run is appended to by the holder of its token alone, while it is not over and
//     no newer generation is reserved. An empty token never matches.
//   - An event is small: its session is a number (sessions.no), its run and conversation are numbers within the
//     session, and one index, (session_no, seq), serves uniqueness and reading. That a frame is written once needs no
//     index: an append writes the frames after runs.last_frame and moves that, under the lock of the session.
//   - The status terminated is the last event of its session. Prompts and runs that
//     are not over are ended in the same transaction, before it.
//   - A block's row holds its text up to text_seq. Later text is in text_delta events until the
//     agent closes the block or its run ends, so that neither a delta nor a read costs as much as
//     the whole text or the whole log.
//   - A change in a workspace is written with its event, and once: its number in the lineage is the
//     row's. What a sandbox reports of its files is checked against their bounds.
//   - A snapshot that was chosen for deletion can not become part of a bundle; one
//     that a bundle needs is never chosen.
//
// # When things fail
//
//	what fails                              what the caller sees
//	--------------------------------------  ------------------------------------------------
//	Postgres is away, restarts, is full     unavailable; the same call may be made again
//	the answer to a commit is lost          unavailable; made again it finds its own work
//	a call of an old generation or attempt  illegal_state or ErrFenced, nothing written
//	two callers claim one prompt            one gets it, the other gets the owner
//	text that cannot be stored (NUL)        invalid_request from a client; from an agent it
//	                                        is stored with U+FFFD in its place
//	data of an event that is not JSON       that append is refused, the rest of the batch goes in
//	a process stops inside a transaction    the server ends it after 5 s and frees the lock
//	another transaction holds a session     unavailable after 10 s, naming the session
//	Postgres freezes or vanishes            unavailable after 15 s; 60 s for bulk data
//	a notification is lost                  nothing: readers poll
//	an unexpected violation                 internal; the cause is for the log
package postgres
