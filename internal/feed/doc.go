// Package feed follows one session's log on behalf of a client, whatever protocol the client speaks. A [Feed] says what
// comes next: events, the end of the catch-up, a gap where events have been deleted, that it is time for a sign of life, or
// that nothing will ever follow. An encoder turns that into bytes and knows neither the store nor the engine.
//
//	eventlog.Follower ──Batch──▶ Feed ──Item──▶ server-sent events, and every other encoder
//	                              ▲
//	       session's row ─────────┘ (is all over?)
//
// # Invariants
//
//   - Every event after the position that the feed was opened at is in exactly one item, in order, or in the range of a
//     gap. Position is where another feed continues without a hole or a repeat.
//   - CaughtUp comes once, after the newest event that there was when the feed was opened.
//   - End comes last, once the session is final, each of its prompts has an outcome, and every event up to there has been
//     in an item. The session's row is read before the log: what the row says was written together with its events.
//   - A feed holds no more than the batch that it has returned. Other feeds share its bytes.
//
// # When things fail
//
//	what fails                        what happens
//	--------------------------------  ------------------------------------------------------------
//	the position is in the future     Open returns *eventlog.FuturePositionError
//	the position has been deleted     Open returns *eventlog.PositionGoneError
//	retention passes an open feed     an item with a Gap, then what follows it
//	compaction has dropped deltas     an item with a Gap in their place
//	Postgres is away                  Next waits; an end is noticed later
//	the session is erased             Next returns session_not_found
//	the process stops                 Next returns the cause of its context, or eventlog.ErrFollowerStopped
package feed
