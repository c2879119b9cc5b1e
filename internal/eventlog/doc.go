// Package eventlog appends to the logs of sessions and follows them. The log in Postgres
// is authoritative; the copies in memory here only make reading fast.
//
//	workers                                              api
//	Append ──┐                                                                     ┌─▶ Reader.Next
//	Append ──┼─▶ Appender ──one commit──▶ Postgres ──one read──▶ tail of a session ─┼─▶ Reader.Next
//	Append ──┘   (gathers)                 │  │    (all that grew)   (in memory)    └─▶ Reader.Next
//	                                       │  └────pages──▶ a reader at an older position
//	                                       └─NOTIFY─▶ Follower: which sessions grew
//
// A session with readers has a tail: its newest events, encoded for the readers, in chunks that
// are filled once and never moved. After a notification, one statement reads the new events of all
// sessions that grew, and the readers are woken; each writes the same bytes from its own position.
// The number of readers does not change the number of statements.
//
// # Invariants
//
//   - The seq of a session is contiguous from 1. The counter is in the session's
//     row. A writer locks the row until its commit, so numbers become visible in
//     order and without gaps.
//   - Append returns after the commit, never before it.
//   - The events of a frame and the translator's state after it are committed together. Frames at
//     or below the newest one that is committed are skipped, so an append whose answer was lost may
//     be made again.
//   - An append carries its sandbox's generation and its attempt's token. If a
//     newer generation or attempt exists, the append fails whole with ErrFenced;
//     the rest of its batch is committed.
//   - A reader gets every event after its position once and in order, or one of
//     PositionGoneError and FuturePositionError. If compaction has dropped events, the reader gets
//     their range in place of them.
//   - A tail has exactly the events between two positions, without a gap; events that compaction has
//     dropped may remain in it. Events that do not follow its newest one replace it. A reader whose
//     position is not in the tail reads Postgres, so a tail may be dropped or shortened at any time.
//   - Publishing never waits for a reader. The memory of tails is bounded for each session and
//     together; a slow reader keeps no more than the chunk that it writes. Readers that read pages from
//     Postgres take turns, a few at once, page by page.
//   - Each process has its own tails. They share nothing but Postgres.
//   - An append on its own is committed at once. Batches form while a commit is
//     under way; a second commit begins only while the first is slow. After a commit that
//     several appends shared there is a pause as long as it took, or of a millisecond for each append,
//     12 ms at most. After a commit of hundreds of events, and before one, it is short.
//   - No session waits for another one's lock: a commit leaves out sessions that
//     other transactions hold, and these are committed alone. Sessions take turns in
//     every commit, and each has one under way at most, so that its appends stay in
//     order. What waits is bounded for each session, in appends and bytes.
//
// # When things fail
//
//	what fails                      what happens
//	------------------------------  --------------------------------------------------------------
//	Postgres is away                Append tries again until its ctx ends; readers likewise
//	a commit's answer is lost       the batch is tried again; what was written is skipped by frame
//	one append cannot be stored     each of its batch is tried alone; only that one fails
//	a session is locked             its appends wait, alone, for the lock in turn with other such
//	                                sessions, and are tried without waiting meanwhile
//	a commit hangs                  it ends after 15 s and is tried again with half the sessions;
//	                                the other sessions are committed alongside it
//	the caller of Append leaves     its events may be committed or not; appending again is safe
//	a worker is lost in a turn      the next attempt's token fences it off; it continues at the next frame
//	the LISTEN connection is lost   it is made again with backoff, then every tail is read once;
//	                                until then the poll finds what is new within a second
//	a notification is lost          the poll finds it
//	Postgres does not answer        readers wait, and are woken by their timers meanwhile; tails
//	                                are read again with backoff
//	a reader is slow                it reads from its own position: from the tail, or from Postgres
//	                                once the tail has moved on
//	readers come back together      the first to read what they missed adds it to the tail
//	retention passes a reader       PositionGoneError with the oldest seq that is left; what is
//	                                deleted leaves the tail with the next read or poll
//	a session is deleted            its readers end with session_not_found and its tail is dropped
//	the process is about to end     Stop commits what waits; readers get ErrFollowerStopped
//
// Events that do not belong to a run have no frame to be recognised by: appended
// again after a lost answer, they may be there twice.
package eventlog
