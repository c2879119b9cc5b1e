// Package compaction tests that logs whose deltas were dropped result in the same conversations,
// with the recordings of all agents and readers at every position.
package compaction
