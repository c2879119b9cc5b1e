// Package durablestream serves reads of a log with the Durable Streams protocol
// (https://github.com/durable-streams/durable-streams, PROTOCOL.md): catch-up reads in chunks, long
// polls, server-sent events, and HEAD. Writes are not part of it.
//
//	GET ?offset=O                  the messages after O, a chunk at most     200, 304
//	GET ?offset=O&live=long-poll   the same; waits if there are none         200, 204 if none came
//	GET ?offset=O&live=sse         the same as events, and what follows      200
//	HEAD                           where the log ends                        200
//
// # Invariants
//
//   - An offset is the position of a message, with leading zeros to 16 digits, so that offsets sort
//     as text. A read with an offset begins after that message. Next-Offset is the position of the
//     last message of a response in every mode, so readers can change the mode between requests.
//   - The same offset always yields the same messages. If they are deleted, the log refuses the
//     position, and the client gets an error, never later messages.
//   - A response has Stream-Closed only if the log reports that nothing follows the last message of
//     that response.
//   - A chunk is held in memory until it is written, because its header names its last message: one
//     request holds Chunk bytes and the result of one call of Next. Server-sent events are written
//     batch by batch.
//   - Nothing is written before the first read of the log succeeds, so that its error can still be
//     the response.
//
// # When things fail
//
//	what fails                       what happens
//	-------------------------------  ---------------------------------------------------------------
//	the position cannot be read      Read returns the log's error; nothing is written
//	the log fails in mid-stream      the answer ends after a control event; the client asks again
//	the client reads too slowly      the write fails after WriteTimeout, and Read returns that
//	the client leaves                Read returns the cause of the request's context
package durablestream
