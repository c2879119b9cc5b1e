package workflows

import (
	"go.temporal.io/sdk/workflow"

	"github.com/overwinter-dev/overwinter/activities"
	"github.com/overwinter-dev/overwinter/internal/problem"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// initialize creates the first sandbox, either immediately or, for a lazy session, when a prompt or
// a wake requires one.
func (l *life) initialize(ctx workflow.Context) error {
	if l.lazy && l.queue.Len() == 0 && !l.wants.Wake {
		return l.rest(ctx, "wait for the first prompt")
	}
	return l.provision(ctx, problem.ProvisioningDelayed, "create the sandbox", control.CreateSandbox)
}

const (
	// maxGenerations is the number of generations that one create or restore may use up in a row.
	maxGenerations = 5
	// maxRounds is the number of such rounds, with pauses between them, after which each attempt
	// uses only one generation, because each unusable generation costs a sandbox.
	maxRounds = 6
)

// provision creates the sandbox of the next generation. If that generation is unusable (its name is
// taken, or its sandbox failed to start or has ended since), provision tries the following
// generation. An unusable generation stays unusable: recover continues with the generation after
// it. After a transient error, or when maxGenerations are used up, provision pauses and leaves the
// state unchanged for a retry. Only a refusal moves the session to error.
func (l *life) provision(ctx workflow.Context, delayed, doing string, activity any) error {
	for tried := 1; ; tried++ {
		var ready activities.SandboxReady
		request := activities.SandboxRequest{SessionID: l.id, Generation: l.generation + 1, Fresh: l.dropped(), Next: l.transitionNo + 1, Then: l.restored(ctx)}
		ahead, err := l.beginAhead(ctx, request.Then, tried)
		if err != nil {
			return err
		}
		request.Claim = ahead.proposal()
		err = l.doUnlessStopped(ctx, doing, provisionOptions, activity, request, &ready)
		if err != nil || ready.Claimed == nil {
			l.endAhead(ahead)
		}
		kind := activities.TypeOf(err)
		if kind == activities.StaleWorkflow || kind == activities.QueueHeld {
			return err
		}
		if kind == activities.Fenced && (ahead != nil || l.rereadsFenced(ctx, request)) {
			return err // another attempt may have restored the session
		}
		if l.wants.Stop || (kind != activities.GenerationUnusable && kind != activities.Fenced) {
			if err != nil {
				if again, reportErr := l.delayed(ctx, delayed, doing, err); again || reportErr != nil {
					return reportErr
				}
			}
			return l.finishStart(ctx, request, ready, ahead, err)
		}
		l.generation, l.sandboxID = request.Generation, ""
		quick := l.errorVersion(ctx) >= quickRetryVersion
		if tried < maxGenerations && (!quick || l.delay.times < maxRounds) {
			continue
		}
		if quick || l.delay.times < maxRounds && l.trouble.tries == 0 {
			if again, reportErr := l.postpone(ctx, delayed, doing, err); again || reportErr != nil {
				return reportErr
			}
		}
		return l.transit(ctx, session.EventFail, unusableReason+activities.ReasonOf(err), nil)
	}
}

// rereadsFencedRestores is the change since which the workflow reads the session again after a restore
// that found that another attempt has recorded its end. Before, it tried generation after generation.
const rereadsFencedRestores = "rereads-fenced-restores"

func (l *life) rereadsFenced(ctx workflow.Context, request activities.SandboxRequest) bool {
	return request.Then != nil && workflow.GetVersion(ctx, rereadsFencedRestores, workflow.DefaultVersion, 1) != workflow.DefaultVersion
}

// dropped reports whether the new sandbox must not have the files of the previous one.
func (l *life) dropped() bool {
	return l.state == session.Restoring && l.reason == session.ReasonDropped
}

// restored returns the transition that follows a restore. It returns nil if the workflow records
// the transition itself, because the transition depends on state that may change during the
// restore.
func (l *life) restored(ctx workflow.Context) *session.Transition {
	if l.state != session.Restoring || l.parked != nil {
		return nil
	}
	t := l.transition(session.EventReady, session.Running, l.startReason(ctx))
	return &t
}

// startReason returns the reason with which the session enters running once it has its sandbox.
func (l *life) startReason(ctx workflow.Context) string {
	switch {
	case l.parked != nil && l.parkEndReason(workflow.Now(ctx)) != "":
		return l.parkEndReason(workflow.Now(ctx))
	case l.queue.Len() > 0 && l.parked == nil:
		return session.ReasonPrompt
	case l.wants.Wake || l.wants.Revert != "":
		return session.ReasonRequested
	}
	return ""
}

// finishStart moves the session on after a create or a restore: to running with the new sandbox, or
// to error with the reason. A stop that arrived in the meantime is handled first, unless the
// activity has recorded the transition. If the activity has also claimed the next prompt, the turn
// follows at once.
func (l *life) finishStart(
	ctx workflow.Context, request activities.SandboxRequest, ready activities.SandboxReady, ahead *aheadTurn, err error,
) error {
	if l.wants.Stop && ready.Recorded.IsZero() {
		if ready.Claimed != nil {
			l.endAhead(ahead)
		}
		return nil
	}
	if err != nil {
		return l.transit(ctx, session.EventFail, activities.ReasonOf(err), nil)
	}
	reason := l.startReason(ctx)
	l.wants.Wake = false
	l.generation, l.sandboxID = ready.Generation, ready.SandboxID
	l.plan(orNow(ctx, ready.Since), ready.Deadline)
	if ready.Recorded.IsZero() {
		err = l.transit(ctx, session.EventReady, reason, ready.Receipt)
	} else {
		t := *request.Then
		t.Generation, t.At = ready.Generation, ready.Recorded
		err = l.enter(ctx, t)
	}
	switch {
	case ready.Claimed == nil:
		return err
	case err != nil:
		l.endAhead(ahead)
		return err
	}
	return l.runAhead(ctx, ahead, *ready.Claimed)
}
