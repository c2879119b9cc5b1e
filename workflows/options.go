package workflows

import (
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/overwinter-dev/overwinter/activities"
	"github.com/overwinter-dev/overwinter/internal/contract"
)

// maxHistoryEvents bounds the history of one run of the workflow. The workflow continues as new
// while its history still has room for one more step, even if the server has not suggested it:
// after about 110 prompts that are not attended.
const maxHistoryEvents = 2000

const (
	// stepEvents bounds the history events of one step: a turn with the maximum number of
	// immediately answered signals (see maxLooksInATurn) or of attended prompts, and the events
	// around the turn.
	stepEvents = 650
	// tailEvents is the part of stepEvents that is reserved for signals other than those of
	// attended prompts, and for the end of the step.
	tailEvents = 150
)

// unloadAfter is how long a session hibernates, or waits for its first prompt,
// before its workflow completes. The next prompt or wake starts it again.
const unloadAfter = 24 * time.Hour

// snapshotBudget is the time that saving a bundle may take. A sandbox is moved to a new generation
// this long before its provider ends it.
const snapshotBudget = 10 * time.Minute

// recordsInTask is the change since which records are first tried within the workflow task.
// Workflows that started before this change keep the earlier behavior until they continue as new.
const recordsInTask = "records-in-task"

// turnOptionsAt returns turnOptions with the turn queue that belongs to the workflow's queue.
func turnOptionsAt(ctx workflow.Context) workflow.ActivityOptions {
	o := turnOptions
	o.TaskQueue = contract.QueuesAt(workflow.GetInfo(ctx).TaskQueueName).Turns
	return o
}

// control and turns only name the activities; the workflow never calls their methods.
var (
	control = new(activities.Control)
	turns   = new(activities.Turns)
)

// The classes of activity. All but turns run on the queue of their workflow. Records are retried
// without limit, because a session cannot continue without Postgres. Provisioning, saving and
// restoring have a few attempts each time; the workflow repeats them, with pauses and an event that
// reports the delay, until they succeed or are refused.
var (
	recordOptions = workflow.ActivityOptions{
		StartToCloseTimeout: 10 * time.Second,
		RetryPolicy: &temporal.RetryPolicy{
			InitialInterval:    100 * time.Millisecond,
			BackoffCoefficient: 2,
			MaximumInterval:    5 * time.Second,
		},
	}
	// inTaskOptions are for the single attempt within the workflow task, which must end well within
	// the ten seconds that the task may take.
	inTaskOptions = workflow.LocalActivityOptions{
		StartToCloseTimeout: 2 * time.Second,
		RetryPolicy:         &temporal.RetryPolicy{MaximumAttempts: 1},
	}
	provisionOptions = workflow.ActivityOptions{
		StartToCloseTimeout: 30 * time.Minute, // includes cloning and setting up a repository
		HeartbeatTimeout:    15 * time.Second,
		WaitForCancellation: true,
		RetryPolicy: &temporal.RetryPolicy{
			InitialInterval:    500 * time.Millisecond,
			BackoffCoefficient: 2,
			MaximumInterval:    5 * time.Second,
			MaximumAttempts:    4,
		},
	}
	saveOptions = workflow.ActivityOptions{
		StartToCloseTimeout: snapshotBudget,
		HeartbeatTimeout:    15 * time.Second,
		WaitForCancellation: true,
		RetryPolicy: &temporal.RetryPolicy{
			InitialInterval:    500 * time.Millisecond,
			BackoffCoefficient: 2,
			MaximumInterval:    5 * time.Second,
			MaximumAttempts:    4,
		},
	}
	// commandOptions are for requested steps that the session can continue without (a checkpoint or
	// a revert), in workflows that started before commandsOutlast.
	commandOptions = workflow.ActivityOptions{
		StartToCloseTimeout: snapshotBudget,
		HeartbeatTimeout:    15 * time.Second,
		WaitForCancellation: true,
		RetryPolicy: &temporal.RetryPolicy{
			InitialInterval:    500 * time.Millisecond,
			BackoffCoefficient: 2,
			MaximumInterval:    15 * time.Second,
			MaximumAttempts:    10,
		},
	}
	// terminateOptions retry without limit, because a running sandbox costs money.
	terminateOptions = workflow.ActivityOptions{
		StartToCloseTimeout: time.Minute,
		HeartbeatTimeout:    15 * time.Second, // the session does nothing else during this time
		RetryPolicy: &temporal.RetryPolicy{
			InitialInterval:    200 * time.Millisecond,
			BackoffCoefficient: 2,
			MaximumInterval:    30 * time.Second,
		},
	}
	// flushOptions are for the final output of a sandbox that is about to be terminated anyway:
	// best effort.
	flushOptions = workflow.ActivityOptions{
		StartToCloseTimeout: 15 * time.Second,
		RetryPolicy:         &temporal.RetryPolicy{MaximumAttempts: 1},
	}
	abortOptions = workflow.ActivityOptions{
		StartToCloseTimeout: 10 * time.Second,
		RetryPolicy: &temporal.RetryPolicy{
			InitialInterval:    100 * time.Millisecond,
			BackoffCoefficient: 2,
			MaximumAttempts:    5,
		},
	}
	// turnOptions do not limit the attempts, because another worker takes over the turn of a lost
	// one. A turn ends when the agent ends it, when it is aborted, or when the sandbox ends.
	turnOptions = workflow.ActivityOptions{
		StartToCloseTimeout: 25 * time.Hour, // longer than the lifetime of any sandbox
		// A Temporal server that stalls for ten seconds costs no attempt, and another worker
		// takes over within twenty seconds of a kill: see activities.pulse.
		HeartbeatTimeout:    18 * time.Second,
		WaitForCancellation: true,
		RetryPolicy: &temporal.RetryPolicy{
			InitialInterval:    200 * time.Millisecond,
			BackoffCoefficient: 2,
			MaximumInterval:    3 * time.Second,
		},
	}
	// reconcileOptions try only once, because the schedule soon runs the next reconciliation.
	reconcileOptions = workflow.ActivityOptions{
		StartToCloseTimeout: 5 * time.Minute,
		HeartbeatTimeout:    15 * time.Second,
		RetryPolicy:         &temporal.RetryPolicy{MaximumAttempts: 1},
	}
)
