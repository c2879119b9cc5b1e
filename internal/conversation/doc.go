// Package conversation defines the conversation between an agent and people: blocks, the events
// that build them in a stream, and the fold from events to blocks. It is pure and does not depend
// on agents, the store or the transport.
//
//	agent's frames ──Translate──▶ events ──Fold──▶ blocks
//	agent's files  ──────────────Parse───────────▶ blocks   (the same ones)
//
// Events of a block in the stream:
//
//	block_start ──▶ text_delta, block_update … ──▶ block_complete   the whole block
//	     │                                    └──▶ block_removed    the agent removed it
//	     └ status streaming, pending or running       status complete, success, error, aborted
//
// # Invariants
//
//   - A block belongs to one conversation, keeps its place in it from its first event, and is
//     identified by the agent's id, the same in stream and transcript.
//   - block_complete contains the whole block: a reader that starts late gets every block that
//     completes later, and events about missed blocks change nothing.
//   - Every block is eventually closed: when no more frames will follow, the translator closes open
//     blocks as aborted, and so does the parser.
//   - JSON round trips preserve a block. In JSON, each type has exactly its own fields. Unknown
//     types are passed through.
//   - The main conversation always exists, possibly empty; others are in the order of their first
//     block.
package conversation
