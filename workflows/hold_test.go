package workflows_test

import (
	"slices"

	"go.temporal.io/sdk/temporal"

	"github.com/overwinter-dev/overwinter/activities"
	"github.com/overwinter-dev/overwinter/internal/contract"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// claimable returns the prompt that may start now, or nil.
func (w *world) claimable() *promptRow {
	if w.held {
		return nil
	}
	return w.firstQueued()
}

// startable refuses to start the first sandbox of a lazy session whose queue is held, unless a
// client requests it.
func (w *world) startable(activity string, generation int64) error {
	asked := slices.ContainsFunc(w.pendingCommands(), func(c session.Command) bool { return c.Kind == session.CommandWake })
	if !w.held || !w.lazy || activity != "CreateSandbox" || generation <= w.generation || asked || w.oldSignals {
		return nil
	}
	w.say("%s is refused: the queue is held", activity)
	return temporal.NewApplicationError("the queue is held", activities.QueueHeld)
}

// hold holds the queue, and release releases it and signals for the first prompt, as Postgres and the api do.
func (c *cast) hold() {
	w := c.stage.world
	w.held = true
	w.nudge()
}

func (c *cast) release() {
	w := c.stage.world
	if !w.held {
		return
	}
	w.held = false
	w.nudge()
	p := w.firstQueued()
	if p == nil || w.openRun() != nil || w.state == session.Error {
		return
	}
	if w.attendant != nil && !w.eachSignal && !w.oldSignals && c.stage.open() && !w.signalled {
		c.attended(p)
		return
	}
	if w.mark(false) || w.oldSignals || !c.stage.open() {
		w.signals++
		c.stage.signal(contract.SignalPrompt, contract.PromptSignal{PromptID: p.ID, Ordinal: p.Ordinal, At: c.stage.now()}, true)
	}
}
