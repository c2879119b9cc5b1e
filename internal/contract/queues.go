package contract

import "strings"

// Names that all installations share, completed by the id of one.
const (
	controlQueue      = "overwinter-control"
	turnsQueue        = "overwinter-turns"
	reconcileSchedule = "overwinter-reconcile"
)

// Queues are the task queues of an installation. Control is for short work that must never wait for
// turns; turns is for the long activities with heartbeats. Workflows run on control.
//
// The names contain the installation's id, so that installations can share a namespace without
// executing each other's tasks.
type Queues struct {
	Control, Turns string
}

// QueuesOf returns the queues of an installation. Releases whose installations shared queues used
// those of "", which the workflows that they started still use.
func QueuesOf(installation string) Queues {
	return Queues{Control: named(controlQueue, installation), Turns: named(turnsQueue, installation)}
}

// QueuesAt returns the queues that belong to the queue of a workflow.
func QueuesAt(control string) Queues {
	installation := strings.TrimPrefix(strings.TrimPrefix(control, controlQueue), "-")
	if control != named(controlQueue, installation) {
		return QueuesOf("") // no queue of ours, such as a test's
	}
	return QueuesOf(installation)
}

// ScheduleOf returns the id of the schedule of an installation's reconciler, and the prefix of its
// workflow's id. The id for "" was used as described for QueuesOf.
func ScheduleOf(installation string) string { return named(reconcileSchedule, installation) }

func named(name, installation string) string {
	if installation == "" {
		return name
	}
	return name + "-" + installation
}
