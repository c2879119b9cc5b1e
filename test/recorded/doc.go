// Package recorded provides session logs made from the recordings of all agents, for tests that
// process logs.
package recorded
