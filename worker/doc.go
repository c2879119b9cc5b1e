// Package worker runs the workflows and the activities of overwinter, and the loops that need no
// workflow: the relay, which repeats the signals of unclaimed prompts, the schedule of the
// reconciler, and the loops that purge sessions, make archives, send webhooks and analyze tables that have grown.
//
// Any number of workers may run, and each may be killed at any time. Another worker continues its
// work: workflows from their history, turns from the runner's journal, everything else from the start.
//
//	queue control   workflows and short activities: a stop never waits for a turn
//	queue turns     turns, long and heartbeating
package worker
