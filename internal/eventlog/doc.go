// Package eventlog appends to the logs of sessions and follows them. The log in Postgres is
// authoritative; the copies in memory only make reading fast.
//
//	workers                                              api
//	Append ──┐                                                                     ┌─▶ Reader.Next
//	Append ──┼─▶ Appender ──one commit──▶ Postgres ──one read──▶ tail of a session ─┼─▶ Reader.Next
//	Append ──┘   (gathers)                 │  │    (all that grew)   (in memory)    └─▶ Reader.Next
//	                                       │  └────pages──▶ a reader at an older position
//	                                       └─NOTIFY─▶ Follower: which sessions grew, and small new events
//
// A session with readers has a tail: its newest events, encoded for the readers, in chunks that are
// filled once and then never move. A notification contains the new events if they are small, and
// they join the tail if they follow its newest event. Otherwise one statement reads the new events
// of all sessions that grew. Then the readers are woken; each writes the same bytes from its own
// position. The number of readers does not change the number of statements.
//
// # Invariants
//
//   - The seq of a session is contiguous from 1. The counter is in the session's
//     row. A writer locks the row until its commit, so numbers become visible in
//     order and without gaps.
//   - Append returns after the commit, never before it.
//   - The events of a frame and the translator's state after it are committed together. Frames at
//     or below the newest committed one are skipped, so an append whose response was lost may be
//     repeated.
//   - An append carries its sandbox's generation and its attempt's token. If a newer generation or
//     attempt exists, the whole append fails with ErrFenced; the rest of its batch is committed.
//   - A reader gets every event after its position once and in order, or one of PositionGoneError
//     and FuturePositionError. If compaction has dropped events, the reader gets their range
//     instead.
//   - A tail contains exactly the events between two positions, without gaps; events that
//     compaction has dropped may remain in it. Events that do not follow its newest one replace the
//     tail. A reader whose position is not in the tail reads Postgres, so a tail may be dropped or
//     shortened at any time.
//   - Publishing never waits for a reader. The memory of tails is bounded per session and in total;
//     a slow reader only keeps the chunk that it is writing. Readers that read pages from Postgres
//     take turns, a few at a time, page by page. Each keeps the page that it is writing; the pages
//     that are read ahead are bounded in total.
//   - Each process has its own tails. Processes only share Postgres.
//   - A single append is committed immediately. Batches form while a commit is in progress; a
//     second commit begins only if the first is slow, or once hundreds of events wait. After a commit that several appends shared
//     there is a pause that lasts as long as the commit, or a millisecond for each append, at most
//     12 ms. Before and after a commit of hundreds of events the pause is short.
//   - No session waits for the lock of another one: a commit skips sessions that other transactions
//     have locked, which are then committed alone. Sessions take turns in every commit, and each
//     has at most one commit in progress, so that its appends stay in order. Waiting appends are
//     bounded per session, in number and bytes.
//
// # Failures
//
//	what fails                      what happens
//	------------------------------  --------------------------------------------------------------
//	Postgres is unreachable         Append retries until its ctx ends; readers likewise
//	a commit's response is lost     the batch is retried; written events are skipped by frame
//	one append cannot be stored     each append of its batch is retried alone; only that one fails
//	a session is locked             its appends wait for the lock, alone and in turn with other such
//	                                sessions; meanwhile they are retried without waiting
//	a commit hangs                  it ends after 15 s and is retried with half the sessions;
//	                                the other sessions are committed alongside it
//	the caller of Append returns    its events may be committed or not; appending again is safe
//	a worker is lost in a turn      the next attempt's token fences it; that attempt continues at the next frame
//	the LISTEN connection is lost   it is reopened with backoff, then every tail is read once;
//	                                until then the poll finds new events within a second
//	a notification is lost          the poll finds it
//	notifications change places     the events of the earlier one do not follow, and are read
//	Postgres does not respond       readers wait, and are woken by their timers meanwhile; tails
//	                                are reread with backoff
//	a session cannot be read        its readers get the error; the others of its statement are read
//	                                alone
//	a reader is slow                it reads from its own position: from the tail, or from Postgres
//	                                once the tail has moved on
//	readers reconnect together      the first one that reads the missed events adds them to the tail
//	retention passes a reader       PositionGoneError with the oldest remaining seq; deleted events
//	                                leave the tail with the next read or poll
//	all new events are deleted      the tail restarts after them, and its readers get
//	                                PositionGoneError, or the range that compaction has dropped
//	a session is deleted            its readers end with session_not_found and its tail is dropped
//	the process is about to end     Stop commits waiting appends; readers get ErrFollowerStopped
//
// Events that do not belong to a run have no frame that identifies them: repeated after a lost
// response, they may be stored twice.
package eventlog
