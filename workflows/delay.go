package workflows

import (
	"fmt"
	"hash/fnv"
	"strconv"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/overwinter-dev/overwinter/activities"
)

// retriesPassingErrors is the change since which create, restore and save are retried until they
// succeed or are refused. Before this change, six failed attempts moved the session to error.
const retriesPassingErrors = "retries-passing-errors"

const (
	// firstDelay is the pause before the first retry; it doubles up to maxPause.
	firstDelay = 2 * time.Second
	// reportEvery is the minimum time between two events that report a delayed operation.
	reportEvery = time.Minute
)

// delay describes an operation that keeps failing with transient errors.
type delay struct {
	code     string // code of the reported events; empty while nothing is delayed
	times    int
	since    time.Time
	reported time.Time
	cause    string
}

func (d delay) String() string {
	return fmt.Sprintf("delayed since %s: %s", d.since.UTC().Format(time.RFC3339), d.cause)
}

// delayed pauses after a transient error, so that the state's step can be retried, and reports
// whether it paused. It does not pause if the error is final or a stop is requested. An event
// reports the failing operation and the time of its first failure.
func (l *life) delayed(ctx workflow.Context, code, doing string, cause error) (bool, error) {
	if activities.IsFinal(cause) || l.wants.Stop {
		return false, nil
	}
	return l.postpone(ctx, code, doing, cause)
}

func (l *life) postpone(ctx workflow.Context, code, doing string, cause error) (bool, error) {
	if workflow.GetVersion(ctx, retriesPassingErrors, workflow.DefaultVersion, 1) == workflow.DefaultVersion {
		return false, nil
	}
	now := workflow.Now(ctx)
	if l.delay.code != code {
		l.delay = delay{code: code, since: now}
	}
	l.delay.times++
	l.delay.cause = activities.ReasonOf(cause)
	if l.delay.reported.IsZero() || now.Sub(l.delay.reported) >= reportEvery {
		l.delay.reported = now
		problem := activities.Problem{SessionID: l.id, Code: code, Message: fmt.Sprintf("%s: %s", doing, l.delay)}
		if err := l.record(ctx, "report the delay", control.TellProblem, problem, nil); err != nil {
			return false, err
		}
	}
	until := workflow.Now(ctx).Add(l.backoff(l.delay.times))
	for workflow.Now(ctx).Before(until) && !l.wants.Stop {
		l.wait(ctx, doing, until)
	}
	return true, nil
}

const (
	// commandsOutlast is the change since which a checkpoint or a revert that fails with a
	// transient error is retried with pauses until commandBudget is used up. Before this change,
	// such a command was refused after ten attempts.
	commandsOutlast = "commands-outlast-outages"
	// commandBudget is how long a command is retried before it is refused. Prompts wait for the
	// command; a stop, a hibernation and the loss of the sandbox do not.
	commandBudget = 15 * time.Minute
)

// try runs the activity of a command. After a transient error, try pauses and reports that the
// command must be retried in a later step. failed is the error of the activity.
func (l *life) try(ctx workflow.Context, code, doing string, activity, in, out any) (again bool, failed, err error) {
	if workflow.GetVersion(ctx, commandsOutlast, workflow.DefaultVersion, 1) == workflow.DefaultVersion {
		return false, l.doUnlessStopped(ctx, doing, commandOptions, activity, in, out), nil
	}
	failed = l.doUnlessStopped(ctx, doing, saveOptions, activity, in, out)
	late := l.delay.code == code && workflow.Now(ctx).Sub(l.delay.since) >= commandBudget
	if failed == nil || late || activities.IsFinal(failed) || l.wants.Stop {
		l.endDelay()
		return false, failed, nil
	}
	again, err = l.postpone(ctx, code, doing, failed)
	return again, failed, err
}

// backoff returns the pause before the n-th retry.
func (l *life) backoff(n int) time.Duration {
	return l.jittered(min(firstDelay<<min(n-1, 4), maxPause), n)
}

// jittered returns between 75% and 100% of the nominal length of the n-th pause, so that sessions
// that fail together do not all retry at the same moment.
func (l *life) jittered(nominal time.Duration, n int) time.Duration {
	h := fnv.New32a()
	_, _ = h.Write([]byte(l.id + "/" + strconv.Itoa(n))) // never fails
	return nominal - time.Duration(h.Sum32()%256)*nominal/4/256
}

// endDelay ends the delay of an operation that has succeeded.
func (l *life) endDelay() { l.delay = delay{} }
