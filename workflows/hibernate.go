package workflows

import (
	"go.temporal.io/sdk/workflow"

	"github.com/overwinter-dev/overwinter/activities"
	"github.com/overwinter-dev/overwinter/internal/problem"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// restartsWithNothing is the change since which a session whose first sandbox died before anything
// was saved hibernates like any other: the next prompt or wake gets a new sandbox. Before this
// change, the session was terminated.
const restartsWithNothing = "restarts-with-nothing"

// hibernated is the reason for the termination of a saved sandbox.
const hibernated = "hibernated"

// hibernate saves a bundle, and terminates the sandbox only after the bundle is committed. The
// activity does both and records the transition, unless the sandbox cannot be terminated at that
// time or the worker's version only saves. If the sandbox has already ended, hibernate saves its
// remains.
func (l *life) hibernate(ctx workflow.Context) error {
	saved, err := l.save(ctx)
	switch {
	case activities.TypeOf(err) == activities.StaleWorkflow:
		return err
	case !saved.Recorded.IsZero():
		l.bundleID, l.sandboxID = saved.BundleID, ""
		t := l.transition(session.EventSaved, session.Hibernated, l.reason)
		t.At = saved.Recorded
		return l.enter(ctx, t)
	case l.wants.Stop:
		return nil
	case err != nil:
		if delayed, reportErr := l.delayed(ctx, problem.SavingDelayed, "save the session", err); delayed || reportErr != nil {
			return reportErr
		}
		return l.transit(ctx, session.EventFail, activities.ReasonOf(err), nil)
	}
	if saved.BundleID == "" {
		if err := l.release(ctx, session.ReasonNothingToRestore); err != nil || l.wants.Stop {
			return err
		}
		if workflow.GetVersion(ctx, restartsWithNothing, workflow.DefaultVersion, 1) != workflow.DefaultVersion {
			return l.transit(ctx, session.EventSaved, l.reason, nil)
		}
		return l.finishTermination(ctx, session.EventAbandoned, session.ReasonNothingToRestore)
	}
	l.bundleID = saved.BundleID
	if saved.Released {
		l.sandboxID = ""
	} else if err := l.release(ctx, hibernated); err != nil {
		return err
	}
	if l.wants.Stop {
		return nil
	}
	return l.transit(ctx, session.EventSaved, l.reason, nil)
}

func (l *life) save(ctx workflow.Context) (activities.Saved, error) {
	then := l.transition(session.EventSaved, session.Hibernated, l.reason)
	request := activities.SaveRequest{SessionID: l.id, Generation: l.generation, SandboxID: l.sandboxID, Release: hibernated, Then: &then}
	return l.saveOf(ctx, request, l.sandboxLost())
}

// saveOf saves a bundle of a sandbox, or the remains of a lost one.
func (l *life) saveOf(ctx workflow.Context, request activities.SaveRequest, lost bool) (saved activities.Saved, err error) {
	encoded := workflow.SideEffect(ctx, func(workflow.Context) any { return session.NewID(session.BundlePrefix) })
	if err := encoded.Get(&request.BundleID); err != nil {
		return saved, err
	}
	if l.reason == session.ReasonDropped {
		// Only the transcripts of the sandbox are needed, so it does not matter whether the sandbox
		// is alive.
		err = l.doUnlessStopped(ctx, "store the transcripts", saveOptions, control.DropSandbox, request, &saved)
		return saved, err
	}
	if !lost {
		err = l.doUnlessStopped(ctx, "save a bundle", saveOptions, control.SaveBundle, request, &saved)
		if activities.TypeOf(err) != activities.SandboxLost {
			return saved, err
		}
	}
	err = l.doUnlessStopped(ctx, "rescue the remains", saveOptions, control.RescueBundle, request, &saved)
	return saved, err
}

// checkpoint saves a bundle of a sandbox that keeps running. The agent is stopped for the
// checkpoint and starts again with the next prompt. If the sandbox cannot be saved, it keeps
// running, since a failed checkpoint loses nothing.
func (l *life) checkpoint(ctx workflow.Context) error {
	request := activities.SaveRequest{SessionID: l.id, Generation: l.generation, SandboxID: l.sandboxID, Checkpoint: true}
	encoded := workflow.SideEffect(ctx, func(workflow.Context) any { return session.NewID(session.BundlePrefix) })
	if err := encoded.Get(&request.BundleID); err != nil {
		return err
	}
	command := l.pendingID(session.CommandSync)
	var saved activities.Saved
	again, err, recordErr := l.try(ctx, problem.SyncDelayed, "save a checkpoint", control.SaveBundle, request, &saved)
	switch {
	case recordErr != nil:
		return recordErr
	case activities.TypeOf(err) == activities.StaleWorkflow:
		return err
	case l.wants.Stop:
	case again:
		l.wants.Sync = true
	case activities.TypeOf(err) == activities.SandboxLost:
		l.markSandboxLost()
	case err != nil:
		if err := l.reportProblem(ctx, problem.SyncFailed, err); err != nil {
			return err
		}
		return l.endCommand(ctx, command, err)
	default:
		l.bundleID = saved.BundleID
		return l.endCommand(ctx, command, nil)
	}
	return nil
}

// release terminates the sandbox, and retries until it has ended.
func (l *life) release(ctx workflow.Context, why string) error {
	ref := activities.SandboxRef{SessionID: l.id, Generation: l.generation, SandboxID: l.sandboxID, Reason: why}
	if !l.wants.Stop { // a session that is being stopped gets no other sandbox
		ref.Transition = l.transitionNo
	}
	if err := l.do(ctx, "terminate the sandbox", terminateOptions, control.TerminateSandbox, ref, nil); err != nil {
		return err
	}
	l.sandboxID = ""
	return nil
}
