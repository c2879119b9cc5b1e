// Package worker runs the workflows and the activities of overwinter, and two things that need no
// workflow: the relay, which signals again for prompts that no run has claimed, and the schedule of
// the reconciler.
//
// Any number of workers may run; any of them may be killed at any time. What one
// was doing another takes up: workflows from history, turns from the runner's
// journal, everything else from the start.
//
//	queue control   workflows and short activities: a stop never waits for a turn
//	queue turns     turns, long and heartbeating
package worker
