package workflows

import (
	"errors"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/overwinter-dev/overwinter/activities"
)

// maxPause is the longest pause before a retry.
const maxPause = 30 * time.Second

// pausesBetweenRefusals is the change since which the workflow pauses after repeated refusals.
const pausesBetweenRefusals = "pauses-between-refusals"

// refusals counts consecutive refusals of the workflow's records by the store.
type refusals struct {
	times int
	last  time.Time
}

// refused reports whether err is an activity's answer. Such an error never ends a session, because
// the session's row has its state and the remaining work.
func refused(err error) bool {
	if _, ok := errors.AsType[*temporal.ApplicationError](err); ok {
		return true
	}
	if _, ok := errors.AsType[*temporal.ActivityError](err); ok {
		return true
	}
	_, ok := errors.AsType[*temporal.TimeoutError](err)
	return ok
}

// reconsider reads the session again after the store has refused a record, because another run of
// this workflow or a paused worker has changed the session's state. If refusals repeat, it first
// pauses, longer each time.
func (l *life) reconsider(ctx workflow.Context, cause error) error {
	for {
		workflow.GetLogger(ctx).Warn("store refused a record; reading the session again", "session_id", l.id, "error", cause)
		if activities.TypeOf(cause) == activities.SessionMissing {
			l.closed = true // no session is left to keep alive
			return nil
		}
		l.pause(ctx)
		err := l.load(ctx)
		if err == nil || !refused(err) {
			return err
		}
		cause = err
	}
}

// pause waits between refusals: not after the first, then 1s, 2s, 4s and so on up to maxPause. It
// receives signals during the pause; they are handled afterwards.
func (l *life) pause(ctx workflow.Context) {
	now := workflow.Now(ctx)
	if now.Sub(l.refusals.last) > 2*maxPause {
		l.refusals.times = 0
	}
	l.refusals.times++
	times := l.refusals.times
	if times > 1 && workflow.GetVersion(ctx, pausesBetweenRefusals, workflow.DefaultVersion, 1) != workflow.DefaultVersion {
		until := now.Add(l.jittered(min(time.Second<<min(times-2, 5), maxPause), times))
		for workflow.Now(ctx).Before(until) {
			l.wait(ctx, "wait after a refusal by the store", until)
		}
	}
	l.refusals.last = workflow.Now(ctx)
}

// lostError is the result of a turn whose sandbox the provider has reported as gone in response to
// another call.
func (l *life) lostError() error {
	kind := activities.SandboxLost
	if l.lost.Limit != "" {
		kind = activities.SandboxLimit
	}
	return temporal.NewNonRetryableApplicationError("the sandbox ended: "+l.lost.Reason, kind, nil)
}
