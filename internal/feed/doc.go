// Package feed follows one session's log on behalf of a client, independently of the client's
// protocol. A [Feed] returns the next item: events, the end of the catch-up, a gap of deleted
// events, a beat, or the end of the log. An encoder converts items to bytes and depends neither on
// the store nor on Temporal.
//
//	eventlog.Follower ──Batch──▶ Feed ──Item──▶ server-sent events, and every other encoder
//	                              ▲
//	       session's row ─────────┘ (is all over?)
//
// # Invariants
//
//   - Every event after the position at which the feed was opened is in exactly one item, in order,
//     or in the range of a gap. Position is where another feed can continue without gaps or
//     repeats.
//   - CaughtUp is set once, after the newest event that existed when the feed was opened.
//   - End is last, when the session is final, each of its prompts has an outcome, and all their
//     events have been in items. The session's row is read before the log, since a change of the
//     row is committed together with its events.
//   - A feed only keeps the batch that it has returned, and the session at its beginning; other feeds share both.
//
// # Failures
//
//	what fails                        what happens
//	--------------------------------  ------------------------------------------------------------
//	the position is in the future     Open returns *eventlog.FuturePositionError
//	the position has been deleted     Open returns *eventlog.PositionGoneError
//	retention passes an open feed     an item with a Gap, then later events
//	compaction has dropped deltas     an item with a Gap instead of them
//	Postgres is unreachable           Next waits; an end is noticed later
//	the session is erased             Next returns session_not_found
//	the process stops                 Next returns the cause of its context, or eventlog.ErrFollowerStopped
package feed
