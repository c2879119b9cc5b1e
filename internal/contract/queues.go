package contract

import "strings"

// Names that all installations share, completed by the id of one.
const (
	controlQueue      = "overwinter-control"
	turnsQueue        = "overwinter-turns"
	reconcileSchedule = "overwinter-reconcile"
)

// Queues are the task queues of an installation. Control holds short work that must never wait for
// turns; turns holds the long, heartbeating activities. Workflows run on control.
//
// The names contain the installation's id, so that installations may share a namespace and take
// none of each other's tasks.
type Queues struct {
	Control, Turns string
}

// QueuesOf are the queues of an installation. Those of "" were used by releases whose installations
// shared queues, and are still used by the workflows that they started.
func QueuesOf(installation string) Queues {
	return Queues{Control: named(controlQueue, installation), Turns: named(turnsQueue, installation)}
}

// QueuesAt are the queues that go with the one that a workflow runs on.
func QueuesAt(control string) Queues {
	installation := strings.TrimPrefix(strings.TrimPrefix(control, controlQueue), "-")
	if control != named(controlQueue, installation) {
		return QueuesOf("") // no queue of ours, such as a test's
	}
	return QueuesOf(installation)
}

// ScheduleOf is the id of the schedule of an installation's reconciler, and the prefix of its
// workflow's. That of "" was used as QueuesOf says.
func ScheduleOf(installation string) string { return named(reconcileSchedule, installation) }

func named(name, installation string) string {
	if installation == "" {
		return name
	}
	return name + "-" + installation
}
