// Package conversation holds what an agent and its people said: blocks, the
// events that build them up in a stream, and the fold from one to the other. It
// is pure and knows no agent, no store and no transport.
//
//	agent's frames ──Translate──▶ events ──Fold──▶ blocks
//	agent's files  ──────────────Parse───────────▶ blocks   (the same ones)
//
// A block's life in the stream:
//
//	block_start ──▶ text_delta, block_update … ──▶ block_complete   the block, whole
//	     │                                    └──▶ block_removed    the agent took it back
//	     └ status streaming, pending or running       status complete, success, error, aborted
//
// # Invariants
//
//   - A block belongs to one conversation, keeps its place in it from its first event on, and is
//     known by the agent's own id, the same in stream and transcript.
//   - block_complete carries the whole block: a reader that starts late has every block that
//     completes afterwards, and events about blocks that were missed change nothing.
//   - Every block is closed in the end: where no frame will come any more, the translator closes
//     what is open as aborted, and so does the parser.
//   - A block is the same before and after a trip through JSON, in which each type has all of its
//     fields and no others. Types that this build does not know are passed on.
//   - The main conversation is there, if empty; others come in the order of their first block.
package conversation
