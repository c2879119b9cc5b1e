package workflows

import (
	"cmp"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/overwinter-dev/overwinter/activities"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// releasesFirst is the change since which a stop terminates the sandbox before the session's
// prompts are cancelled, so that a long queue or a database that refuses the cancellations does not
// keep a sandbox running.
const releasesFirst = "releases-first"

// terminate ends the session from any state. It flushes the sandbox if that is quick, terminates
// the sandbox, then cancels the prompts, and finally moves the session to terminated.
func (l *life) terminate(ctx workflow.Context) error {
	if !l.releasesFirst(ctx) {
		if err := l.cancelPrompts(ctx); err != nil {
			return err
		}
	}
	if l.sandboxID != "" && !l.sandboxLost() {
		l.flush(ctx)
	}
	if l.state.HasSandbox() {
		if err := l.release(ctx, session.ReasonSessionTerminated); err != nil {
			return err
		}
	}
	return l.finishTermination(ctx, session.EventStop, cmp.Or(l.stopReason, session.ReasonRequested))
}

// flush stores the last output of a sandbox that is about to be terminated. It is tried once.
func (l *life) flush(ctx workflow.Context) {
	ref := activities.SandboxRef{SessionID: l.id, Generation: l.generation, SandboxID: l.sandboxID}
	if err := l.do(ctx, "flush the transcripts", flushOptions, control.FlushSandbox, ref, nil); err != nil {
		workflow.GetLogger(ctx).Info("could not flush transcripts before terminating the sandbox", "session_id", l.id, "error", err)
	}
}

func (l *life) releasesFirst(ctx workflow.Context) bool {
	return workflow.GetVersion(ctx, releasesFirst, workflow.DefaultVersion, 1) != workflow.DefaultVersion
}

// cancelPrompts ends every prompt of the session that has not ended. The activity commits a bounded
// number of them at a time.
func (l *life) cancelPrompts(ctx workflow.Context) error {
	cancel := activities.PromptsRequest{SessionID: l.id, Reason: session.ReasonSessionTerminated}
	return l.record(ctx, "cancel queued prompts", control.CancelPrompts, cancel, nil)
}

// cancelRun gives a run that a stop interrupts its outcome, so that the interrupted turn cannot
// give it another. It is tried once, within the workflow task, so the stop does not wait for the
// database. A run that stays open is cancelled after the sandbox has ended.
func (l *life) cancelRun(ctx workflow.Context, run session.Processing) {
	o := inTaskOptions
	o.Summary = "cancel the run"
	request := activities.SettleRequest{
		RunID: run.RunID, Outcome: session.OutcomeCancelled, Reason: session.ReasonSessionTerminated,
	}
	f := workflow.ExecuteLocalActivity(workflow.WithLocalActivityOptions(ctx, o), control.SettleRun, request)
	for !f.IsReady() {
		l.wait(ctx, o.Summary, time.Time{}, f)
	}
	if err := f.Get(ctx, nil); err != nil {
		workflow.GetLogger(ctx).Info("could not cancel a run before its turn was interrupted", "session_id", l.id, "run_id", run.RunID, "error", err)
	}
}

// finishTermination moves the session to terminated. Newer prompts are cancelled first, so that no
// event follows the last status; complete cancels prompts that arrive even later.
func (l *life) finishTermination(ctx workflow.Context, event session.Event, reason string) error {
	if err := l.cancelPrompts(ctx); err != nil {
		return err
	}
	if err := l.transit(ctx, event, reason, nil); err != nil || !l.state.Final() {
		return err
	}
	l.wants.Stop = false
	return nil
}
