// Package compaction tests that logs whose deltas were dropped lead to the same conversations: over the recordings of all agents, and
// with readers at every position.
package compaction
