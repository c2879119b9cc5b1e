// Package conversation holds what an agent and its people said: blocks, the
// events that build them up in a stream, and the fold from one to the other. It
// is pure and knows no agent, no store and no transport.
//
//	agent's frames ──Translate──▶ events ──Fold──▶ blocks
//	agent's files  ──────────────Parse───────────▶ blocks   (the same ones)
package conversation
