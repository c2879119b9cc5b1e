package workflows

import (
	"cmp"

	"go.temporal.io/sdk/workflow"

	"github.com/overwinter-dev/overwinter/activities"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// terminate ends the session from wherever it stands: the running turn is
// settled, last words are saved if they come quickly, the sandbox is gone, and
// only then is the session terminated.
func (l *life) terminate(ctx workflow.Context) error {
	cancel := activities.PromptsRequest{SessionID: l.id, Reason: session.ReasonSessionTerminated}
	if err := l.record(ctx, "cancel what is queued", control.CancelPrompts, cancel, nil); err != nil {
		return err
	}
	if l.sandboxID != "" && !l.sandboxLost() {
		ref := activities.SandboxRef{SessionID: l.id, Generation: l.generation, SandboxID: l.sandboxID}
		if err := l.do(ctx, "save last words", flushOptions, control.FlushSandbox, ref, nil); err != nil {
			workflow.GetLogger(ctx).Info("last words of a sandbox are lost", "session_id", l.id, "error", err)
		}
	}
	if l.state.HasSandbox() {
		if err := l.release(ctx, session.ReasonSessionTerminated); err != nil {
			return err
		}
	}
	return l.over(ctx, session.EventStop, cmp.Or(l.stopReason, session.ReasonRequested))
}

// over takes the step into terminated. Prompts that came in since are cancelled
// before it, so that nothing follows the last status; put cancels what is later still.
func (l *life) over(ctx workflow.Context, event session.Event, reason string) error {
	cancel := activities.PromptsRequest{SessionID: l.id, Reason: session.ReasonSessionTerminated}
	if err := l.record(ctx, "cancel what is queued", control.CancelPrompts, cancel, nil); err != nil {
		return err
	}
	if err := l.transit(ctx, event, reason, nil); err != nil || !l.state.Final() {
		return err
	}
	l.wants.Stop = false
	return nil
}
